/* Python's frames read out of the interpreter's own structures (emit_python_raw.c). */
#ifndef CENI_EMIT_PYTHON_H
#define CENI_EMIT_PYTHON_H

#include <sys/types.h>

#include "trace/emit_gather.h"

/* A text that is not there in UTF-8 yet; later it may be. */
#define CENI_NO_TEXT "?"

/* Whether the structures of this version (Py_Version >> 16) are known. */
bool ceni_python_is_known(unsigned version);
/* The frames of the thread whose PyThreadState it is, the calling one; 0 too if they are not what
 * they should be. The types: PyCode_Type, PyUnicode_Type, PyBytes_Type. */
typedef struct ceni_python {
    unsigned version;
    const void *code_type, *text_type, *bytes_type;
    int (*line_of)(void *code, int offset); /* PyCode_Addr2Line */
    ssize_t (*hash_of)(void *object);       /* PyObject_Hash */
} ceni_python;
size_t ceni_python_read(const ceni_python *python, const void *thread, cen_frame *frames,
                        size_t capacity);

/* The innermost CENI_NAMED_MAX frames, told apart by 64 bits of hash without reading what they are
 * called; 0: there are none. False: they must be read. */
bool ceni_python_hash(const ceni_python *python, const void *thread, uint64_t *hash);
/* The same of the calling thread. */
bool ceni_python_hash_here(uint64_t *hash);

#endif
