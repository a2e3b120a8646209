/* A chain of operations from its text. */
#include "probe/paper/paper.h"

#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* By kind. GELU is counted as its tanh form: 8 operations an element. */
static const struct {
    const char *name;
    double flops;
} ops[] = {
    [CENI_OP_LINEAR] = {"linear", 0}, [CENI_OP_BIAS] = {"bias", 1},
    [CENI_OP_SCALE] = {"scale", 1},   [CENI_OP_RESIDUAL] = {"residual", 1},
    [CENI_OP_RELU] = {"relu", 1},     [CENI_OP_GELU] = {"gelu", 8},
};

const char *ceni_op_name(ceni_op_kind kind) {
    return ops[kind].name;
}

double ceni_op_flops(ceni_op_kind kind) {
    return ops[kind].flops;
}

double ceni_op_operand(const ceni_op *op, double m) {
    switch (op->kind) {
    case CENI_OP_LINEAR:
        return (double)op->in * (double)op->out;
    case CENI_OP_BIAS:
    case CENI_OP_SCALE:
        return (double)op->out;
    case CENI_OP_RESIDUAL:
        return m * (double)op->out;
    default:
        return 0;
    }
}

/* An item is cut out of the text into this; no word is as long. */
typedef struct item {
    char word[32];
    int number; /* of the item, from 1 */
} item;

static bool find_kind(const char *name, size_t length, ceni_op_kind *kind) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strlen(ops[i].name) == length && !strncasecmp(name, ops[i].name, length)) {
            *kind = (ceni_op_kind)i;
            return true;
        }
    }
    return false;
}

/* The columns after "linear"; no text leaves *columns as it is. */
static cen_status parse_columns(const item *it, const char *text, uint64_t *columns) {
    uint64_t n = 0;
    if (!*text) {
        return CEN_OK;
    }
    for (; isdigit((unsigned char)*text) && n <= INT32_MAX; text++) {
        n = n * 10 + (uint64_t)(*text - '0');
    }
    if (*text || !n || n > INT32_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "chain: item %d, '%s': linear takes its columns, 1 to 2147483647",
                         it->number, it->word);
    }
    *columns = n;
    return CEN_OK;
}

static cen_status parse_item(const item *it, uint64_t in, uint64_t n, ceni_op *op) {
    size_t length = strcspn(it->word, " ");
    const char *rest = it->word + length + strspn(it->word + length, " ");
    if (!find_kind(it->word, length, &op->kind)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "chain: item %d, '%s': no such operation; there are linear, bias, scale, "
                         "residual, relu and gelu",
                         it->number, it->word);
    }
    op->in = op->out = in;
    if (op->kind == CENI_OP_LINEAR) {
        op->out = n;
        return parse_columns(it, rest, &op->out);
    }
    return *rest ? ceni_fail(CEN_ERR_INVALID, "chain: item %d, '%s': only linear takes a number",
                             it->number, it->word)
                 : CEN_OK;
}

/* Cuts out the item that begins at `text`, without the space around it. */
static cen_status cut(const char *text, item *it) {
    size_t length = strcspn(text, ",");
    while (length && isspace((unsigned char)*text)) {
        text++, length--;
    }
    while (length && isspace((unsigned char)text[length - 1])) {
        length--;
    }
    if (!length || length >= sizeof it->word) {
        return ceni_fail(CEN_ERR_INVALID, "chain: item %d is %s", it->number,
                         length ? "too long for an operation" : "empty");
    }
    memcpy(it->word, text, length);
    it->word[length] = '\0';
    return CEN_OK;
}

cen_status ceni_chain_parse(const char *text, uint64_t k, uint64_t n, ceni_chain *chain) {
    chain->count = 0;
    for (;;) {
        item it = {.number = (int)chain->count + 1};
        if (chain->count == CENI_CHAIN_MAX) {
            return ceni_fail(CEN_ERR_INVALID, "chain: more than %d operations", CENI_CHAIN_MAX);
        }
        cen_status status = cut(text, &it);
        if (!status) {
            status = parse_item(&it, k, n, &chain->ops[chain->count]);
        }
        if (status) {
            return status;
        }
        k = chain->ops[chain->count++].out;
        text += strcspn(text, ",");
        if (!*text++) {
            return CEN_OK;
        }
    }
}
