#include "base/str.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(ceni_str *str, size_t more) {
    if (!str->failed && ceni_grow(&str->data, &str->capacity, str->size + more + 1, 1) != 0) {
        str->failed = true;
    }
    return !str->failed;
}

void ceni_str_printf(ceni_str *str, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        str->failed = true;
    } else if (reserve(str, (size_t)length)) {
        vsnprintf(str->data + str->size, (size_t)length + 1, format, again);
        str->size += (size_t)length;
    }
    va_end(again);
}

void ceni_str_fill(ceni_str *str, char c, int count) {
    if (count > 0 && reserve(str, (size_t)count)) {
        memset(str->data + str->size, c, (size_t)count);
        str->size += (size_t)count;
        str->data[str->size] = '\0';
    }
}

char *ceni_str_take(ceni_str *str) {
    char *data = NULL;
    if (!str->failed && reserve(str, 0)) {
        data = str->data;
        data[str->size] = '\0';
    } else {
        ceni_free(str->data);
    }
    *str = (ceni_str){0};
    return data;
}

const char *ceni_size_text(char text[CENI_SIZE_TEXT], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    int digits = !unit || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(text, CENI_SIZE_TEXT, "%.*f %s", digits, value, units[unit]);
    return text;
}

const char *ceni_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
