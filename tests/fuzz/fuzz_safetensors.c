/* Property: whatever the bytes, opening them as a tensor file ends in an error that was logged, or
 * in tensors that keep what tensor.h promises: names that are there once and are found, bytes that
 * lie one after another and fill the file, and that can all be read, summed up, compared and, if
 * they say that they are quantised, decoded. Seeds: tests/fuzz/corpus/safetensors. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cenote/log.h"
#include "cenote/quantize.h"

enum { DECODED = 1 << 16 }; /* elements; of more, only the description is read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_decoding(const cen_tensors *tensors, const cen_tensor *t) {
    cen_quantized q;
    if (cen_quantized_find(tensors, t->name, &q) || q.rows * q.cols > DECODED) {
        return;
    }
    require(q.rows && q.cols && q.rank && q.values == t);
    void *to = malloc(q.rows * q.cols * 4);
    cen_tensor_difference d;
    if (!to) {
        return;
    }
    (void)cen_quantized_read(tensors, &q, 0, q.rows, q.dtype, to);
    if (!cen_tensors_compare(tensors, t, tensors, t, &d)) {
        require(d.count == q.rows * q.cols && !d.different);
    }
    free(to);
}

static void check_tensor(const cen_tensors *tensors, const cen_tensor *t, uint64_t *end) {
    cen_tensor_stats stats;
    require(t->offset == *end && cen_tensors_find(tensors, t->name) == t);
    *end += t->bytes;
    require(t->count == t->bytes * 8 / t->bits && t->bytes * 8 % t->bits == 0);
    if (t->dtype) {
        require(!cen_tensors_stats(tensors, t, &stats) && stats.count == t->count);
        require(stats.nan + stats.infinite + stats.zeros <= t->count && stats.min <= stats.max);
    }
    uint8_t last;
    if (t->bytes) {
        require(!cen_tensors_read(tensors, t, t->bytes - 1, 1, &last));
    }
    require(cen_tensors_read(tensors, t, t->bytes, 1, &last) == CEN_ERR_INVALID);
    (void)cen_quantized_is_part(tensors, t);
    check_decoding(tensors, t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    require(!ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    cen_tensors *tensors = NULL;
    (void)cen_log_last_error();
    if (cen_tensors_open(path, &tensors)) {
        require(!tensors && !strncmp(cen_log_last_error(), path, strlen(path)));
        return 0;
    }
    uint64_t end = cen_tensors_get_shard(tensors, 0)->header_bytes;
    for (size_t i = 0; i < cen_tensors_count(tensors); i++) {
        check_tensor(tensors, cen_tensors_get(tensors, i), &end);
    }
    require(end == size);
    for (size_t i = 0; i < cen_tensors_note_count(tensors); i++) {
        const cen_tensor_note *note = cen_tensors_get_note(tensors, i);
        require(cen_tensors_find_note(tensors, note->key) == note->value);
    }
    cen_tensors_close(tensors);
    return 0;
}
