/* Python's frames read out of the interpreter's own structures (emit_python_raw.c). */
#ifndef CENI_EMIT_PYTHON_H
#define CENI_EMIT_PYTHON_H

#include "cenote/trace.h"

/* Whether the structures of this version (Py_Version >> 16) are known. */
bool ceni_python_is_known(unsigned version);
/* The frames of the thread whose PyThreadState it is, the calling one; 0 too if they are not what
 * they should be. `code_type`, `text_type`: PyCode_Type and PyUnicode_Type. */
typedef struct ceni_python {
    unsigned version;
    const void *code_type, *text_type;
    int (*line_of)(void *code, int offset); /* PyCode_Addr2Line */
} ceni_python;
size_t ceni_python_read(const ceni_python *python, const void *thread, cen_frame *frames,
                        size_t capacity);

#endif
