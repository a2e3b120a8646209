#include "ipc/token.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fd.h"
#include "base/log.h"

/* kind, machine, then export id and secret, or handle, device, offset and bytes; a check sum. Kinds
 * differ in how much of the machine's hash there is room for. */
enum {
    EXPORT_SIZE = 1 + 8 + 8 + 16,
    LEGACY_SIZE = 1 + 4 + 64 + 4 + 6 + 6,
    CHECK_SIZE = 4,
    MOST = LEGACY_SIZE + CHECK_SIZE
};

static const char prefix[] = "cenote1.";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

_Static_assert(sizeof prefix + (MOST * 4 + 2) / 3 <= CEN_SHARE_TOKEN_SIZE, "");

static struct {
    pthread_once_t once;
    uint64_t id;
} machine = {.once = PTHREAD_ONCE_INIT};

/* One boot of one machine: handles and ids do not outlive it. All containers of it agree. 0: there
 * is no /proc that tells. */
static void learn_machine(void) {
    char text[64] = {0};
    int fd = ceni_fd_move(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof text);
        close(fd);
        machine.id = got > 0 ? XXH64(text, (size_t)got, 0) : 0;
    }
}

static uint64_t machine_id(void) {
    pthread_once(&machine.once, learn_machine);
    return machine.id;
}

static uint8_t *put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        *at++ = (uint8_t)(value >> (8 * i));
    }
    return at;
}

static const uint8_t *get(const uint8_t *at, uint64_t *value, int bytes) {
    *value = 0;
    for (int i = 0; i < bytes; i++) {
        *value |= (uint64_t)*at++ << (8 * i);
    }
    return at;
}

static void encode(const uint8_t *data, size_t size, char *text) {
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i < 3 ? size - i : 3;
        uint32_t word = (uint32_t)data[i] << 16;
        word |= left > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        word |= left > 2 ? data[i + 2] : 0;
        for (size_t d = 0; d <= left; d++) {
            *text++ = digits[word >> (18 - 6 * d) & 63];
        }
    }
    *text = 0;
}

/* The number of bytes that the text stands for; 0: it is malformed. */
static size_t decode(const char *text, uint8_t data[MOST]) {
    size_t length = strnlen(text, CEN_SHARE_TOKEN_SIZE), size = length * 3 / 4;
    uint32_t word = 0;
    if (length % 4 == 1 || size > MOST) {
        return 0;
    }
    for (size_t i = 0, out = 0; i < length; i++) {
        const char *digit = memchr(digits, text[i], sizeof digits - 1);
        if (!digit) {
            return 0;
        }
        word = word << 6 | (uint32_t)(digit - digits);
        if (i % 4) {
            data[out++] = (uint8_t)(word >> (6 - 2 * (i % 4)));
        }
    }
    /* Bits beyond the last byte are zero, so that a token has one text. */
    unsigned spare = (unsigned)(length * 6 - size * 8);
    return word & ((1u << spare) - 1) ? 0 : size;
}

static uint32_t check_sum(const uint8_t *data, size_t size) {
    return (uint32_t)XXH64(data, size, 1);
}

static void write_for(uint64_t where, const ceni_token *token, char text[CEN_SHARE_TOKEN_SIZE]) {
    uint8_t data[MOST], *at = put(data, token->kind, 1);
    if (token->kind == CENI_TOKEN_EXPORT) {
        at = put(at, where, 8);
        at = put(at, token->export_id, 8);
        at = put(at, token->secret[0], 8);
        at = put(at, token->secret[1], 8);
    } else {
        at = put(at, where, 4);
        memcpy(at, token->handle, sizeof token->handle);
        at = put(at + sizeof token->handle, token->device, 4);
        at = put(at, token->offset, 6);
        at = put(at, token->bytes, 6);
    }
    at = put(at, check_sum(data, (size_t)(at - data)), CHECK_SIZE);
    memcpy(text, prefix, sizeof prefix);
    encode(data, (size_t)(at - data), text + sizeof prefix - 1);
}

void ceni_token_write(const ceni_token *token, char text[CEN_SHARE_TOKEN_SIZE]) {
    write_for(machine_id(), token, text);
}

void ceni_token_elsewhere(const ceni_token *token, char text[CEN_SHARE_TOKEN_SIZE]) {
    write_for(~machine_id(), token, text);
}

bool ceni_token_is(const char *text) {
    return !strncmp(text, prefix, sizeof prefix - 1);
}

static bool read_parts(const uint8_t *data, size_t size, ceni_token *token, bool *here) {
    uint64_t kind, from, device, sum;
    size_t body = size - CHECK_SIZE;
    const uint8_t *at = get(data, &kind, 1);
    get(data + body, &sum, CHECK_SIZE);
    if (sum != check_sum(data, body)) {
        return false;
    }
    if (kind == CENI_TOKEN_EXPORT && body == EXPORT_SIZE) {
        token->kind = CENI_TOKEN_EXPORT;
        at = get(at, &from, 8);
        at = get(at, &token->export_id, 8);
        at = get(at, &token->secret[0], 8);
        get(at, &token->secret[1], 8);
        *here =
            !from || !machine_id() || from == machine_id(); /* else the broker does not know it */
        return true;
    }
    if (kind == CENI_TOKEN_LEGACY && body == LEGACY_SIZE) {
        token->kind = CENI_TOKEN_LEGACY;
        at = get(at, &from, 4);
        memcpy(token->handle, at, sizeof token->handle);
        at = get(at + sizeof token->handle, &device, 4);
        token->device = (uint32_t)device;
        at = get(at, &token->offset, 6);
        get(at, &token->bytes, 6);
        *here = from == (machine_id() & UINT32_MAX);
        return true;
    }
    return false;
}

cen_status ceni_token_read(const char *text, ceni_token *token) {
    uint8_t data[MOST];
    ceni_token made = {0};
    bool here = false;
    size_t size = ceni_token_is(text) ? decode(text + sizeof prefix - 1, data) : 0;
    if (size <= CHECK_SIZE || !read_parts(data, size, &made, &here)) {
        return ceni_fail(CEN_ERR_FORMAT, "token: the text is no whole token of cenote's");
    }
    if (!here) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "token: it was made on another machine, or before this one was started; "
                         "across machines, use NCCL");
    }
    *token = made;
    return CEN_OK;
}

uint32_t ceni_token_device(const char *uuid) {
    return (uint32_t)XXH64(uuid, strlen(uuid), 2);
}
