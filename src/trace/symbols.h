/* Names for places in programs and libraries: by their symbol tables and debug information, where
 * the build has elfutils (CENI_HAVE_LIBDW) and the file is still the one that was running. */
#ifndef CENI_TRACE_SYMBOLS_H
#define CENI_TRACE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ceni_symbols ceni_symbols; /* of one module */

typedef struct ceni_place {
    const char *function, *file; /* NULL: not known; they live as long as the module is open */
    uint32_t line;
} ceni_place;

/* Opens a module's file if it is a regular one with this build id, in hexadecimal. NULL: not
 * known, which is no failure. */
ceni_symbols *ceni_symbols_open(const char *path, const char *build_id);
void ceni_symbols_close(ceni_symbols *symbols);
/* offset: from where the file was loaded. False: nothing known. */
bool ceni_symbols_find(ceni_symbols *symbols, uint64_t offset, ceni_place *place);

#endif
