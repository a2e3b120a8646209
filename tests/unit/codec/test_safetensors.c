/* The reader of tensor files: what it takes, and that each trap is refused with its reason. */
#include "tensor_files.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"

#define ONE(entry) "{\"a\":{" entry "}}"

static void reads_what_is_there(void **state) {
    put_tensors("ok",
                "{\"__metadata__\":{\"z\":\"1\",\"a\":\"\\u00e9\"},"
                "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[24,26]},"
                "\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[26,27]}}   ",
                27);
    cen_tensors *t = open_tensors("ok");
    assert_int_equal(cen_tensors_count(t), 3);
    const cen_tensor *w = cen_tensors_get(t, 0);
    assert_string_equal(w->name, "w");
    assert_string_equal(w->type, "F32");
    assert_int_equal(w->dtype, CEN_FP32);
    assert_true(w->rank == 2 && w->shape[0] == 2 && w->shape[1] == 3);
    assert_true(w->count == 6 && w->bytes == 24 && w->bits == 32 && !w->shard);
    assert_ptr_equal(cen_tensors_find(t, "w"), w);
    assert_ptr_equal(cen_tensors_find(t, ""), cen_tensors_get(t, 2));
    assert_int_equal(cen_tensors_get(t, 2)->count, 1);
    assert_null(cen_tensors_find(t, "x"));
    assert_null(cen_tensors_get(t, 3));
    assert_int_equal(cen_tensors_note_count(t), 2);
    assert_string_equal(cen_tensors_get_note(t, 0)->value, "\xc3\xa9");
    assert_string_equal(cen_tensors_find_note(t, "z"), "1");
    assert_null(cen_tensors_find_note(t, "w"));
    assert_null(cen_tensors_get_note(t, 2));
    const cen_tensor_shard *file = cen_tensors_get_shard(t, 0);
    assert_int_equal(file->bytes, file->header_bytes + 27);
    assert_null(cen_tensors_get_shard(t, 1));
    uint8_t two[2];
    assert_int_equal(cen_tensors_read(t, cen_tensors_find(t, "b"), 0, 2, two), CEN_OK);
    assert_true(two[0] == 24 && two[1] == 25);
    assert_int_equal(cen_tensors_read(t, w, 23, 1, two), CEN_OK);
    assert_int_equal(two[0], 23);
    cen_tensors_close(t);
}

/* The smallest files, tensors without bytes at either end, white space before the header, and
 * fields that a later version may add. */
static void takes_what_is_odd_and_right(void **state) {
    static const struct {
        const char *header;
        size_t data, count;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {" \n\t{ } \r\n", 0, 0},
        {ONE("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, 1},
        {ONE("\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]"), 3, 1},
        {ONE("\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]"), 8, 1},
        {ONE("\"dtype\":\"F8_E8M0\",\"shape\":[1],\"data_offsets\":[0,1],\"later\":[{}]"), 1, 1},
        {ONE("\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]"), 0, 1},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         2, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_tensors("odd", cases[i].header, cases[i].data);
        cen_tensors *t = open_tensors("odd");
        assert_int_equal(cen_tensors_count(t), cases[i].count);
        cen_tensors_close(t);
    }
}

static void every_type_has_its_size(void **state) {
#define ROW(name, bits, dtype) {name, bits, (cen_dtype)(dtype)},
    static const struct {
        const char *name;
        uint32_t bits;
        cen_dtype dtype;
    } types[] = {CEN_TENSOR_TYPE_MAP(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[256];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}", types[i].name,
                 types[i].bits);
        put_tensors("type", header, types[i].bits);
        cen_tensors *t = open_tensors("type");
        const cen_tensor *a = cen_tensors_get(t, 0);
        assert_string_equal(a->type, types[i].name);
        assert_true(a->dtype == types[i].dtype && a->bits == types[i].bits);
        assert_true(!a->dtype || cen_dtype_bits(a->dtype) == a->bits);
        assert_true(!a->dtype || !strcmp(cen_tensor_type(a->dtype), a->type));
        cen_tensors_close(t);
    }
    assert_null(cen_tensor_type(CEN_INT4));
    assert_null(cen_tensor_type((cen_dtype)0));
}

/* ---- the traps ---- */

static void lengths_are_compared_before_memory_is_asked_for(void **state) {
    static const uint64_t lengths[] = {100000001, UINT32_MAX, INT64_MAX, UINT64_MAX - 7,
                                       UINT64_MAX};
    char words[128];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_claim("n", lengths[i], "{}", 2, 0);
        snprintf(words, sizeof words,
                 "no tensor file: a header of %llu bytes; 100000000 are the most",
                 (unsigned long long)lengths[i]);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 5, true);
        refused("n", CEN_ERR_FORMAT, words);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
    }
    put_claim("n", 3, "{}", 2, 0);
    refused("n", CEN_ERR_TRUNCATED, "a header of 3 bytes is announced, and 2 follow");
    put_claim("n", 100000000, "{}", 2, 0);
    refused("n", CEN_ERR_TRUNCATED, "a header of 100000000 bytes is announced, and 2 follow");
    put_file("n", "\1\0\0\0\0\0", 7);
    refused("n", CEN_ERR_TRUNCATED, "7 bytes; a tensor file has 8 and a header at least");
    put_file("n", "", 0);
    refused("n", CEN_ERR_TRUNCATED, "0 bytes; a tensor file has 8 and a header at least");
    put_claim("n", 0, "", 0, 0);
    refused("n", CEN_ERR_FORMAT, "header, byte 0: '{' is expected");
}

static void what_is_no_header_is_refused(void **state) {
    static const struct {
        const char *header, *words;
    } cases[] = {
        {"[]", "header, byte 0: '{' is expected"},
        {"{", "header, byte 1: a name in quotes is expected"},
        {"{}{}", "header, byte 2: the header's end is expected"},
        {"{} x", "header, byte 3: the header's end is expected"},
        {"{1:2}", "header, byte 1: a name in quotes is expected"},
        {"{\"a\"}", "header, byte 4: ':' is expected"},
        {"{\"a\":{}", "header: tensor 'a': dtype: one of safetensors' types is expected"},
        {"{\"a\":3}", "header, byte 5: an object that describes a tensor is expected"},
        {"{\"a\":[[[[", "header, byte 5: an object that describes a tensor is expected"},
        {"{\"a", "header, byte "},
        {"{\"a\":{\"dtype\":", "header, byte "},
        {"{\"\xff\":{}}", "header, byte "},
        {"{\"\xed\xa0\x80\":{}}", "header, byte "},
        {"{\"a\\u0000b\":{}}", "header, byte "},
        {"{\"\\ud800\":{}}", "header, byte "},
        {"{\"__metadata__\":[]}", "header, byte 16: an object is expected"},
        {"{\"__metadata__\":{\"k\":1}}", "header, byte 21: text in quotes, as all metadata is, is "
                                         "expected"},
        {"{\"__metadata__\":{\"k\":{\"l\":\"m\"}}}", "header, byte 21: text in quotes"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "header: __metadata__ is there twice"},
        {"{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}",
         "header: __metadata__: 'k' is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_tensors("h", cases[i].header, 0);
        refused("h", CEN_ERR_FORMAT, cases[i].words);
    }
    put_claim("h", 4, "{}\0\0", 4, 0);
    refused("h", CEN_ERR_FORMAT, "header, byte 2: the header's end is expected");
}

static void what_is_no_tensor_is_refused(void **state) {
    static const struct {
        const char *entry, *words;
    } cases[] = {
        {"\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]", "dtype: one of safetensors'"},
        {"\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]", "dtype: one of safetensors'"},
        {"\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]", "dtype: one of safetensors'"},
        {"\"dtype\":\"F32\",\"data_offsets\":[0,4]", "shape: a list is expected"},
        {"\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]", "shape: a list is expected"},
        {"\"dtype\":\"F32\",\"shape\":[1]", "data_offsets: a list of two whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]", "data_offsets: a list of two"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,2,4]", "data_offsets: a list of two"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]",
         "data_offsets: its end is before its beginning"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]", "data_offsets: not as many"},
        {"\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]", "a number with a sign"},
        {"\"dtype\":\"F32\",\"shape\":[-0],\"data_offsets\":[0,0]", "a number with a sign"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]", "a number with a sign"},
        {"\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]", "shape: whole numbers from 0"},
        {"\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]", "shape: whole numbers from 0"},
        {"\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]", "shape: whole numbers from"},
        {"\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]", "shape: whole numbers from 0"},
        {"\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,4]", "shape: whole numbers from"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4e0]", "data_offsets: a list of two"},
        {"\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]",
         "shape: too many bytes, or a last"},
        {"\"dtype\":\"F6_E3M2\",\"shape\":[3],\"data_offsets\":[0,3]", "shape: too many bytes, or"},
        /* Products that wrap: to 0, to 4, with a 0 behind; bits that wrap. */
        {"\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]",
         "shape: too many bytes"},
        {"\"dtype\":\"F32\",\"shape\":[2,9223372036854775807,2],\"data_offsets\":[0,4]",
         "shape: too many bytes"},
        {"\"dtype\":\"U8\",\"shape\":[9223372036854775807,4,0],\"data_offsets\":[0,0]",
         "shape: too many bytes"},
        {"\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]",
         "shape: too many bytes"},
    };
    char header[512], words[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"a\":{%s}}", cases[i].entry);
        snprintf(words, sizeof words, "header: tensor 'a': %s", cases[i].words);
        put_tensors("t", header, 4);
        refused("t", CEN_ERR_FORMAT, words);
    }
    /* What no integer of JSON's reader holds, and a key that is there twice. */
    put_tensors(
        "t", ONE("\"dtype\":\"U8\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,4]"), 4);
    refused("t", CEN_ERR_FORMAT, "header, byte ");
    put_tensors(
        "t", ONE("\"dtype\":\"U8\",\"shape\":[4],\"sh\\u0061pe\":[4],\"data_offsets\":[0,4]"), 4);
    refused("t", CEN_ERR_FORMAT, "header, byte ");
}

static void bytes_belong_to_one_tensor_each(void **state) {
    static const char two[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
                              "\"b\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}";
    static const struct {
        int a[2], b[2];
        size_t data;
        cen_status status;
        const char *words;
    } cases[] = {
        {{0, 4},
         {5, 8},
         8,
         CEN_ERR_FORMAT,
         "tensor 'b' begins at byte 5 of the data; the one before "
         "ends at 4"},
        {{0, 4}, {3, 8}, 8, CEN_ERR_FORMAT, "tensor 'b' begins at byte 3 of the data"},
        {{0, 4}, {0, 4}, 4, CEN_ERR_FORMAT, "tensor 'b' begins at byte 0 of the data"},
        {{0, 8}, {2, 4}, 8, CEN_ERR_FORMAT, "tensor 'b' begins at byte 2 of the data"},
        {{1, 4},
         {4, 8},
         8,
         CEN_ERR_FORMAT,
         "tensor 'a' begins at byte 1 of the data; the one before "
         "ends at 0"},
        {{0, 4}, {4, 8}, 9, CEN_ERR_FORMAT, "1 bytes at its end belong to no tensor"},
        {{0, 4}, {4, 8}, 7, CEN_ERR_TRUNCATED, "cut off: 7 bytes of data, and its tensors have 8"},
        {{0, 4}, {9, 9}, 4, CEN_ERR_FORMAT, "tensor 'b' begins at byte 9 of the data"},
    };
    char header[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int *a = cases[i].a, *b = cases[i].b;
        snprintf(header, sizeof header, two, a[1] - a[0], a[0], a[1], b[1] - b[0], b[0], b[1]);
        put_tensors("l", header, cases[i].data);
        refused("l", cases[i].status, cases[i].words);
    }
    put_tensors("l", "{}", 1);
    refused("l", CEN_ERR_FORMAT, "1 bytes at its end belong to no tensor");
    put_tensors("l",
                ONE("\"dtype\":\"U8\",\"shape\":[1152921504606846976],"
                    "\"data_offsets\":[0,1152921504606846976]"),
                4);
    refused("l", CEN_ERR_TRUNCATED, "cut off: 4 bytes of data");
}

static void names_are_there_once(void **state) {
    static const char *const forms[] = {
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        put_tensors("d", forms[i], 2);
        refused("d", CEN_ERR_FORMAT, "tensor 'a' is there twice");
    }
    /* The very same entry twice overlaps itself, unless it has no bytes. */
    put_tensors("d",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                0);
    refused("d", CEN_ERR_FORMAT, "tensor 'a' is there twice");
}

/* Depth and size beyond what a header needs end in a failure, not in a full stack or memory. */
static void deep_and_long_entries_are_refused(void **state) {
    enum { SIZE = 1 << 20 };
    static const char begin[] = "{\"a\":{\"x\":", end[] = "0}}";
    char *header = malloc(SIZE + sizeof end);
    assert_non_null(header);
    memset(header, '[', SIZE);
    memcpy(header, begin, sizeof begin - 1);
    put_claim("deep", SIZE, header, SIZE, 0);
    refused("deep", CEN_ERR_FORMAT, "header, byte ");
    memset(header, ' ', SIZE);
    memcpy(header, begin, sizeof begin - 1);
    memcpy(header + SIZE - (sizeof end - 1), end, sizeof end);
    put_claim("deep", SIZE, header, SIZE, 0);
    refused("deep", CEN_ERR_FORMAT, "header, byte 5: an entry of more than 65536 bytes");
    free(header);
}

/* Elements that no pointer may be cast to: the data begins at every distance from a multiple of 8.
 */
static void data_need_not_be_aligned(void **state) {
    char header[256];
    for (int pad = 0; pad < 9; pad++) {
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}%*s", pad, "");
        put_tensors("u", header, 16);
        cen_tensors *t = open_tensors("u");
        double values[2];
        uint8_t bytes[17];
        assert_int_equal(cen_tensors_values(t, cen_tensors_get(t, 0), 0, 2, values), CEN_OK);
        assert_int_equal(cen_tensors_read(t, cen_tensors_get(t, 0), 0, 16, bytes + 1), CEN_OK);
        assert_memory_equal(values, bytes + 1, 16);
        cen_tensors_close(t);
    }
}

static void a_file_that_is_cut_off_later_ends_nothing(void **state) {
    put_tensors("c", ONE("\"dtype\":\"U8\",\"shape\":[9000],\"data_offsets\":[0,9000]"), 9000);
    cen_tensors *t = open_tensors("c");
    uint64_t head = cen_tensors_get_shard(t, 0)->header_bytes;
    assert_int_equal(truncate(in_folder("c"), (off_t)head + 4000), 0);
    uint8_t *bytes = malloc(9000);
    assert_non_null(bytes);
    const cen_tensor *a = cen_tensors_get(t, 0);
    assert_int_equal(cen_tensors_read(t, a, 0, 4000, bytes), CEN_OK);
    assert_int_equal(cen_tensors_read(t, a, 0, 4001, bytes), CEN_ERR_TRUNCATED);
    assert_non_null(strstr(cen_log_last_error(), "1 more are expected"));
    cen_tensor_stats stats;
    assert_int_equal(cen_tensors_stats(t, a, &stats), CEN_ERR_TRUNCATED);
    free(bytes);
    cen_tensors_close(t);
}

static void what_is_no_plain_file_is_refused(void **state) {
    cen_tensors *t = NULL;
    refused("absent", CEN_ERR_NOT_FOUND, "cannot be opened: No such file or directory");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    refused("pipe", CEN_ERR_IO, "no plain file");
    assert_int_equal(cen_tensors_open(test_folder, &t), CEN_ERR_IO);
    assert_int_equal(cen_tensors_open("/dev/zero", &t), CEN_ERR_IO);
    assert_int_equal(cen_tensors_open(NULL, &t), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_open("a", NULL), CEN_ERR_INVALID);
    assert_null(t);
}

static void arguments_are_checked(void **state) {
    put_tensors("g", ONE("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]"), 4);
    cen_tensors *t = open_tensors("g");
    const cen_tensor *a = cen_tensors_get(t, 0);
    uint8_t b[8];
    assert_int_equal(cen_tensors_read(NULL, a, 0, 1, b), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_read(t, NULL, 0, 1, b), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_read(t, a, 0, 1, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_read(t, a, 4, 0, NULL), CEN_OK);
    assert_int_equal(cen_tensors_read(t, a, 3, 2, b), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_read(t, a, 5, 0, b), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_read(t, a, UINT64_MAX, 2, b), CEN_ERR_INVALID);
    assert_int_equal(
        cen_tensors_count(NULL) + cen_tensors_note_count(NULL) + cen_tensors_shard_count(NULL), 0);
    assert_null(cen_tensors_find(t, NULL));
    assert_true(cen_tensors_reads(t, in_folder("g")));
    assert_int_equal(link(in_folder("g"), in_folder("other")), 0);
    assert_true(cen_tensors_reads(t, in_folder("other")));
    assert_false(cen_tensors_reads(t, in_folder("absent")));
    cen_tensors_close(t);
    cen_tensors_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(takes_what_is_odd_and_right),
        cmocka_unit_test(every_type_has_its_size),
        cmocka_unit_test(lengths_are_compared_before_memory_is_asked_for),
        cmocka_unit_test(what_is_no_header_is_refused),
        cmocka_unit_test(what_is_no_tensor_is_refused),
        cmocka_unit_test(bytes_belong_to_one_tensor_each),
        cmocka_unit_test(names_are_there_once),
        cmocka_unit_test(deep_and_long_entries_are_refused),
        cmocka_unit_test(data_need_not_be_aligned),
        cmocka_unit_test(a_file_that_is_cut_off_later_ends_nothing),
        cmocka_unit_test(what_is_no_plain_file_is_refused),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
