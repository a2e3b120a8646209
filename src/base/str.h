/* A string that grows: text is appended, and a failed allocation is remembered instead of checked
 * at each call. Zero-initialise; take the result with ceni_str_take. */
#ifndef CENI_STR_H
#define CENI_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ceni_str {
    char *data; /* ends with NUL once anything was appended */
    size_t size;
    size_t capacity;
    bool failed; /* memory ran out: the text is incomplete */
} ceni_str;

void ceni_str_printf(ceni_str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends `count` times `c`; nothing if count <= 0. */
void ceni_str_fill(ceni_str *str, char c, int count);

/* Hands over the text, for the caller to free(); NULL, and the memory released, if it failed. */
char *ceni_str_take(ceni_str *str);

/* "12.0 MiB": three digits. `text` holds it, and is returned. */
#define CENI_SIZE_TEXT 32
const char *ceni_size_text(char text[CENI_SIZE_TEXT], uint64_t bytes);

/* What follows the last '/' of a path; all of it if there is none. */
const char *ceni_base_name(const char *path);

#endif
