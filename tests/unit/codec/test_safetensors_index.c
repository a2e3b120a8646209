/* Models in several files, and that failures while reading leave nothing behind. */
#include "tensor_files.h"

#include "base/fault.h"
#include "tests/files.h"

static void put_model(void) {
    put_tensors("m-1.safetensors",
                "{\"__metadata__\":{\"format\":\"pt\",\"part\":\"1\"},"
                "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
                3);
    put_tensors("m-2.safetensors",
                "{\"__metadata__\":{\"part\":\"2\",\"more\":\"yes\"},"
                "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                3);
}

static void put_index(const char *text) {
    put_file("m.safetensors.index.json", text, strlen(text));
}

#define MAP(rest)                                                                                  \
    "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":\"m-2.safetensors\",\"b\":\"m-1."      \
    "safetensors\"" rest "}}"
static const char whole[] = MAP(",\"c\":\"m-2.safetensors\"");

static void shards_are_one_model(void **state) {
    put_model();
    put_index(whole);
    cen_tensors *t = open_tensors("m.safetensors.index.json");
    assert_int_equal(cen_tensors_count(t), 3);
    assert_int_equal(cen_tensors_shard_count(t), 2);
    assert_string_equal(cen_tensors_get_shard(t, 1)->path, in_folder("m-2.safetensors"));
    const cen_tensor *c = cen_tensors_find(t, "c");
    uint8_t byte;
    assert_int_equal(c->shard, 1);
    assert_int_equal(cen_tensors_read(t, c, 0, 1, &byte), CEN_OK);
    assert_int_equal(byte, 2);
    assert_int_equal(cen_tensors_note_count(t), 3);
    assert_string_equal(cen_tensors_find_note(t, "part"), "1");
    assert_string_equal(cen_tensors_find_note(t, "more"), "yes");
    assert_string_equal(cen_tensors_find_note(t, "format"), "pt");
    assert_true(cen_tensors_reads(t, in_folder("m-2.safetensors")));
    cen_tensors_close(t);
}

static void refused_index(const char *text, const char *words) {
    put_index(text);
    refused("m.safetensors.index.json", CEN_ERR_FORMAT, words);
}

static void what_the_index_says_is_checked(void **state) {
    put_model();
    refused_index("", ":");
    refused_index("[]", "weight_map: an object is expected");
    refused_index("{\"weight_map\":{}}", "weight_map: it is empty");
    refused_index("{\"weight_map\":{\"a\":\"x\",\"\\u0061\":\"x\"}}", ":");
    refused_index("{\"weight_map\":{\"a\":3}}", "weight_map: 'a': the name of a file beside");
    refused_index("{\"weight_map\":{\"a\":\"\"}}", "weight_map: 'a': the name of a file beside");
    refused_index("{\"weight_map\":{\"a\":\"..\"}}", "weight_map: 'a': the name of a file beside");
    refused_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "weight_map: 'a': the name of a");
    refused_index("{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "weight_map: 'a': the name");
    refused_index(MAP(""), "weight_map: 2 tensors; the files have 3");
    refused_index(MAP(",\"c\":\"m-1.safetensors\""),
                  "weight_map: tensor 'c' is not in m-1.safetensors");
    refused_index(MAP(",\"c\":\"m-2.safetensors\",\"d\":\"m-2.safetensors\""),
                  "weight_map: tensor 'd' is not in m-2.safetensors");
    put_index("{\"weight_map\":{\"a\":\"m-3.safetensors\"}}");
    cen_tensors *t = NULL;
    assert_int_equal(cen_tensors_open(in_folder("m.safetensors.index.json"), &t),
                     CEN_ERR_NOT_FOUND);
    put_tensors("m-3.safetensors",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    put_index(MAP(",\"c\":\"m-2.safetensors\",\"d\":\"m-3.safetensors\""));
    assert_int_equal(cen_tensors_open(in_folder("m.safetensors.index.json"), &t), CEN_ERR_FORMAT);
    assert_non_null(strstr(cen_log_last_error(), "m-3.safetensors: tensor 'a' is there twice"));
    put_tensors("m-2.safetensors", "{", 0);
    put_index(whole);
    assert_int_equal(cen_tensors_open(in_folder("m.safetensors.index.json"), &t), CEN_ERR_FORMAT);
    assert_non_null(strstr(cen_log_last_error(), "m-2.safetensors: header, byte 1"));
    assert_null(t);
    files(true);
}

static char warned[256];

static void keep(void *arg, cen_log_level level, const char *message) {
    snprintf(warned, sizeof warned, "%s", level == CEN_LOG_WARN ? message : "");
}

static void a_wrong_sum_is_a_warning(void **state) {
    put_model();
    cen_log_set(keep, NULL, CEN_LOG_WARN);
    put_index(whole);
    cen_tensors_close(open_tensors("m.safetensors.index.json"));
    assert_string_equal(warned, "");
    put_index("{\"metadata\":{\"total_size\":7},\"weight_map\":{\"b\":\"m-1.safetensors\"}}");
    cen_tensors_close(open_tensors("m.safetensors.index.json"));
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    assert_non_null(strstr(warned, "metadata: total_size is 7; the tensors have 3 bytes"));
}

/* Each allocation and each call of the system fails once; the sanitizers see what is left behind.
 */
static void failures_leave_nothing(void **state) {
    static const cen_status expected[] = {
        [CENI_FAULT_HOST_MEMORY] = CEN_ERR_HOST_MEMORY, [CENI_FAULT_IO] = CEN_ERR_IO};
    put_model();
    put_index(whole);
    unsigned open_before = files_of(getpid());
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        int64_t n = 1;
        for (cen_status status = CEN_ERR_IO; status; n++) {
            cen_tensors *t = NULL;
            cen_tensor_stats stats;
            cen_tensor_difference difference;
            ceni_fault_set(&ceni_fault_points[point], n, false);
            status = cen_tensors_open(in_folder("m.safetensors.index.json"), &t);
            assert_int_equal(t != NULL, !status);
            const cen_tensor *a = cen_tensors_find(t, "a");
            status = status ? status : cen_tensors_stats(t, a, &stats);
            status = status ? status : cen_tensors_compare(t, a, t, a, &difference);
            ceni_fault_set(&ceni_fault_points[point], 0, false);
            assert_int_equal(status, status ? expected[point] : CEN_OK);
            cen_tensors_close(t);
            assert_int_equal(files_of(getpid()), open_before);
        }
        assert_true(n > 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(what_the_index_says_is_checked),
        cmocka_unit_test(a_wrong_sum_is_a_warning),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
