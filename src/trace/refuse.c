/* What the pickle machine does not do, said so that a user understands it: which code the file
 * wanted to run, or which opcode it holds. */
#include "trace/opcode.h"
#include "trace/read.h"

#include <ctype.h>
#include <string.h>

/* A line of a GLOBAL for a message: printable characters only, cut where `to` is full. Returns
 * where the next line begins, at most `end`. */
static const uint8_t *copy_line(char *to, size_t size, const uint8_t *from, const uint8_t *end) {
    const uint8_t *stop = memchr(from, '\n', (size_t)(end - from));
    const uint8_t *next = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    size_t count = 0;
    for (; from + count < stop && count + 1 < size; count++) {
        to[count] = (char)(isprint(from[count]) ? from[count] : '?');
    }
    to[count] = 0;
    return next;
}

/* Opcodes outside the subset: says which, and what the pickle wanted to run. */
cen_status ceni_pickle_refuse(ceni_reader *reader, const uint8_t **op, const uint8_t *p) {
    static const struct {
        uint8_t op;
        const char *name;
    } code[] = {{'R', "REDUCE"},  {'b', "BUILD"},      {'i', "INST"},     {'o', "OBJ"},
                {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"}, {0x82, "EXT1"},    {0x83, "EXT2"},
                {0x84, "EXT4"},   {'P', "PERSID"},     {'Q', "BINPERSID"}};
    char module[64] = "", attribute[64] = "";
    uint8_t byte = p[-1];
    if (byte == OP_GLOBAL) {
        if (ceni_source_fill(reader, *op, 256)) {
            return reader->status;
        }
        *op = reader->source.window;
        p = copy_line(module, sizeof module, *op + 1, reader->source.end);
        copy_line(attribute, sizeof attribute, p, reader->source.end);
    } else if (byte == OP_STACK_GLOBAL && reader->stack.count >= 2) {
        ceni_value *top = reader->stack.at + reader->stack.count;
        for (int i = 0; i < 2; i++) {
            const char *text = ceni_tag_of(top[i - 2]) == CENI_STR
                                   ? ceni_string(reader, (uint32_t)ceni_payload(top[i - 2]))
                                   : "?";
            copy_line(i ? attribute : module, sizeof module, (const uint8_t *)text,
                      (const uint8_t *)text + strlen(text));
        }
    }
    if (byte == OP_GLOBAL || byte == OP_STACK_GLOBAL) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "refused: it would run code (%s.%s); a snapshot is plain data",
                              module, attribute);
    }
    for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
        if (code[i].op == byte) {
            return ceni_read_fail(
                reader, CEN_ERR_FORMAT,
                "refused: it would run code (opcode %s); a snapshot is plain data", code[i].name);
        }
    }
    if (byte == OP_NEXT_BUFFER || byte == OP_READONLY_BUFFER) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "refused: it needs out-of-band buffers");
    }
    return ceni_read_fail(reader, CEN_ERR_FORMAT,
                          "0x%02x is no opcode of a plain pickle of protocols 2 to 5", byte);
}
