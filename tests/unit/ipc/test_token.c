/* The text of tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/token.h"

static ceni_token export_token(void) {
    return (ceni_token){.kind = CENI_TOKEN_EXPORT,
                        .export_id = 0x1122334455667788,
                        .secret = {0xfedcba9876543210, 42}};
}

static ceni_token legacy_token(void) {
    ceni_token t = {.kind = CENI_TOKEN_LEGACY,
                    .device = 0xdeadbeef,
                    .offset = 0xffffffffffff,
                    .bytes = 0x123456789abc};
    for (size_t i = 0; i < sizeof t.handle; i++) {
        t.handle[i] = (uint8_t)(i * 37);
    }
    return t;
}

static void they_come_back(void **state) {
    const ceni_token made[] = {export_token(), legacy_token()};
    for (size_t i = 0; i < 2; i++) {
        char text[CEN_SHARE_TOKEN_SIZE];
        ceni_token read = {0};
        ceni_token_write(&made[i], text);
        assert_true(ceni_token_is(text));
        assert_null(strpbrk(text, " /+=\n"));
        assert_int_equal(ceni_token_read(text, &read), CEN_OK);
        assert_memory_equal(&read, &made[i], sizeof read);
    }
}

static void a_changed_one_is_refused(void **state) {
    const ceni_token made[] = {export_token(), legacy_token()};
    for (size_t i = 0; i < 2; i++) {
        char text[CEN_SHARE_TOKEN_SIZE], changed[CEN_SHARE_TOKEN_SIZE + 8];
        ceni_token read;
        ceni_token_write(&made[i], text);
        size_t length = strlen(text);
        for (size_t at = 0; at < length; at++) {
            for (const char *c = "Az9-_ ~\x80"; *c; c++) {
                memcpy(changed, text, sizeof text);
                changed[at] = *c;
                if (*c != text[at]) {
                    assert_int_equal(ceni_token_read(changed, &read), CEN_ERR_FORMAT);
                }
            }
            memcpy(changed, text, sizeof text);
            changed[at] = 0;
            assert_int_equal(ceni_token_read(changed, &read), CEN_ERR_FORMAT);
        }
        snprintf(changed, sizeof changed, "%sA", text);
        assert_int_equal(ceni_token_read(changed, &read), CEN_ERR_FORMAT);
        snprintf(changed, sizeof changed, "%sAAAA", text);
        assert_int_equal(ceni_token_read(changed, &read), CEN_ERR_FORMAT);
    }
}

static void what_is_none_is_refused(void **state) {
    ceni_token read;
    char *long_one = malloc(100000);
    memset(long_one, 'A', 99999);
    long_one[99999] = 0;
    memcpy(long_one, "cenote1.", 8);
    const char *const texts[] = {
        "", "cenote1.", "cenote1.A", "cenote1.AAAA", "cenote2.AAAA", "model/weights@3", long_one};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(ceni_token_read(texts[i], &read), CEN_ERR_FORMAT);
    }
    free(long_one);
}

/* The bytes are sound, the machine is another. */
static void another_machines_is_named_as_that(void **state) {
    ceni_token read, made = export_token();
    char text[CEN_SHARE_TOKEN_SIZE];
    ceni_token_elsewhere(&made, text);
    assert_int_equal(ceni_token_read(text, &read), CEN_ERR_UNSUPPORTED);
    made = legacy_token();
    ceni_token_elsewhere(&made, text);
    assert_int_equal(ceni_token_read(text, &read), CEN_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_back),
        cmocka_unit_test(a_changed_one_is_refused),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(another_machines_is_named_as_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
