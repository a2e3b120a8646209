/* What jansson says of a text that it does not take, without what only its callers know. */
#ifndef CENI_JSON_H
#define CENI_JSON_H

#include <jansson.h>

static inline const char *ceni_json_fault(const json_error_t *error) {
    enum json_error_code code = json_error_code(error);
    return code == json_error_null_character || code == json_error_null_byte_in_key
               ? "a text with a NUL (\\u0000) in it"
               : error->text;
}

#endif
