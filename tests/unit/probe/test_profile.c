/* The reader of ncu's recordings: both tables, units and digits, what is refused with which words;
 * then figures, verdicts, and that no failure leaves anything behind. */
#include "base/fault.h"
#include "cenote/log.h"
#include "cenote/profile.h"
#include "probe/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER TEST_DATA "/profile/"
#define PEAK   ".avg.pct_of_peak_sustained_elapsed"
#define OP     "sm__sass_thread_inst_executed_op_"

static cen_profile *load(const char *file) {
    cen_profile *profile = NULL;
    assert_int_equal(cen_profile_read(file, &profile), CEN_OK);
    return profile;
}

static cen_profile *parse(const char *text) {
    cen_profile *profile = NULL;
    cen_status status = cen_profile_read_memory("f", text, strlen(text), &profile);
    if (status) {
        print_message("%s\n", cen_log_last_error());
    }
    assert_int_equal(status, CEN_OK);
    return profile;
}

static void refused(cen_status expected, const char *text, const char *words) {
    cen_profile *profile = NULL;
    (void)cen_log_last_error();
    assert_int_equal(cen_profile_read_memory("f", text, strlen(text), &profile), expected);
    assert_null(profile);
    assert_string_equal(cen_log_last_error(), words);
}

static double value(const cen_profile_row *row, cen_profile_figure figure) {
    if (row->figures[figure].missing) {
        print_message("%s: %s\n", cen_profile_key(figure), row->figures[figure].missing);
    }
    assert_null(row->figures[figure].missing);
    return row->figures[figure].value;
}

static void near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected))) {
        print_message("%.17g, expected %.17g\n", got, expected);
        fail();
    }
}

static void missing(const cen_profile_row *row, cen_profile_figure figure, const char *why) {
    assert_non_null(row->figures[figure].missing);
    assert_string_equal(row->figures[figure].missing, why);
    assert_true(row->figures[figure].value == 0);
}

/* ---- the three programs ---- */

static void a_strided_copy_is_uncoalesced(void **state) {
    cen_profile *p = load(FOLDER "strided.csv");
    assert_int_equal(cen_profile_count(p), 1);
    const cen_profile_row *row = cen_profile_get(p, 0);
    assert_non_null(strstr(row->kernel, "strided_copy(const float *"));
    assert_string_equal(row->grid, "(65536, 1, 1)");
    assert_string_equal(row->block, "(256, 1, 1)");
    assert_int_equal(row->launches, 2);
    assert_int_equal(row->bound, CEN_PROFILE_BY_DRAM);
    assert_memory_equal(row->advice, "uncoalesced loads use 4.0 of", 28);
    near(value(row, CEN_PROFILE_SECONDS), 1390144e-9);
    near(value(row, CEN_PROFILE_DRAM_SHARE), (0.884 * 690112 + 0.876 * 700032) / 1390144);
    near(value(row, CEN_PROFILE_DRAM_BYTES), 2.0 * (2147483648. + 67108864));
    near(value(row, CEN_PROFILE_L2_HIT), 0.0691);
    near(value(row, CEN_PROFILE_LOAD_BYTES), 4);
    near(value(row, CEN_PROFILE_INTENSITY), 0);
    missing(row, CEN_PROFILE_BANK_RATIO, "the kernel uses no shared memory");
    near(row->time_share, 1);
    assert_null(cen_profile_get(p, 1));
    cen_profile_free(p);
    cen_profile_free(NULL);
}

static void a_naive_product_is_bound_at_l1(void **state) {
    cen_profile *p = load(FOLDER "naive.csv");
    const cen_profile_row *row = cen_profile_get(p, 0);
    assert_int_equal(row->bound, CEN_PROFILE_BY_L1);
    near(row->bound_share, 0.939); /* of what feeds L1: more than of L1 itself */
    near(value(row, CEN_PROFILE_FP32), 2 * 8589934592.);
    near(value(row, CEN_PROFILE_INTENSITY), 256);
    assert_memory_equal(row->advice, "reuse more in registers", 23);
    cen_profile_free(p);
}

static void a_tuned_product_is_bound_by_arithmetic(void **state) {
    cen_profile *p = load(FOLDER "tuned.csv");
    const cen_profile_row *row = cen_profile_get(p, 0);
    assert_int_equal(row->bound, CEN_PROFILE_BY_COMPUTE);
    near(value(row, CEN_PROFILE_BANK_RATIO), 1); /* by addresses: the unit's own counter has more */
    assert_string_equal(row->limit, "registers");
    assert_memory_equal(row->advice, "tensor cores are idle", 21);
    cen_profile_measured m;
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load(TEST_DATA "/probe/gpu.json", &probe), CEN_OK);
    assert_int_equal(cen_profile_measure(row, cen_probe_get_device(probe, 0), &m), CEN_OK);
    near(m.l2, 1124073472. / 402432e-9 / 1e13);
    assert_true(m.dram > 0 && m.fp32 > 0);
    assert_int_equal(cen_profile_measure(row, NULL, &m), CEN_ERR_INVALID);
    cen_probe_free(probe);
    cen_profile_free(p);
}

/* ---- tables ---- */

#define DETAILS                                                                                    \
    "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\","        \
    "\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
#define LINE(id, name, metric, unit, value)                                                        \
    "\"" id "\",\"9\",\"" name                                                                     \
    "\",\"(32, 1, 1)\",\"(2, 1, 1)\",\"1\",\"9.0\",\"Command\",\"" metric "\",\"" unit             \
    "\",\"" value "\"\n"

static void details_are_gathered_by_launch(void **state) {
    cen_profile *p = parse(
        "==PROF== Connected\nthe program's own line\n" DETAILS LINE(
            "0", "a", "gpu__time_duration.sum", "us", "1,205.50")
            LINE("0", "a", "dram__bytes_read.sum", "Mbyte", "2.5") LINE(
                "0", "a", "dram__bytes_write.sum", "Kbyte",
                "500") "a line of the program's, between\n" LINE("1", "b", "gpu__time_duration.sum",
                                                                 "ms", "3")
                LINE("2", "a", "gpu__time_duration.sum", "second", "1")
                    LINE("2", "a", "dram__bytes_read.sum", "Gbyte", "1")
                        LINE("2", "a", "dram__bytes_write.sum", "byte", "7"));
    assert_int_equal(cen_profile_count(p), 2);
    const cen_profile_row *a = cen_profile_get(p, 0), *b = cen_profile_get(p, 1);
    assert_string_equal(a->kernel, "a"); /* by time */
    assert_string_equal(b->kernel, "b");
    assert_int_equal(a->launches, 2);
    assert_int_equal(a->device, 1);
    near(value(a, CEN_PROFILE_SECONDS), 1.0012055);
    near(value(a, CEN_PROFILE_DRAM_BYTES), 1e9 + 7 + 3e6);
    near(a->time_share, 1.0012055 / 1.0042055);
    assert_int_equal(a->bound, CEN_PROFILE_BY_UNKNOWN);
    assert_string_equal(a->reason, "dram__throughput" PEAK " is not in the recording");
    assert_string_equal(a->advice, "");
    missing(b, CEN_PROFILE_DRAM_BYTES, "dram__bytes_read.sum is not in the recording");
    cen_profile_free(p);
}

static void tables_may_follow_each_other(void **state) {
    cen_profile *p = parse("ID,Kernel Name,gpu__time_duration.sum\n,,ns\n0,k,100\n"
                           "ID,gpu__time_duration.sum,Kernel Name\r\n,us,\r\n1,7,k\r\n");
    assert_int_equal(cen_profile_count(p), 1);
    near(value(cen_profile_get(p, 0), CEN_PROFILE_SECONDS), 7.1e-6);
    assert_string_equal(cen_profile_get(p, 0)->grid, "");
    cen_profile_free(p);
}

static void without_units_they_are_base_units(void **state) {
    cen_profile *p =
        parse("\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"0\",\"k\",\"250\"\n");
    near(value(cen_profile_get(p, 0), CEN_PROFILE_SECONDS), 250e-9);
    cen_profile_free(p);
}

static void names_hold_anything(void **state) {
    cen_profile *p = parse("\"ID\",\"Kernel Name\"\n"
                           "\"0\",\"f<\"\"x\"\", 1>(a,\n b)\"\n"
                           "\"1\",\"\xff\xfe\x1b[2J \xc3\xa9\"\n");
    assert_int_equal(cen_profile_count(p), 2);
    assert_string_equal(cen_profile_get(p, 1)->kernel, "f<\"x\", 1>(a,? b)");
    assert_string_equal(cen_profile_get(p, 0)->kernel, "???[2J \xc3\xa9");
    cen_profile_free(p);
}

static void long_names_are_cut(void **state) {
    enum { LONG = 20000 };
    char *name = calloc(1, LONG + 1), *text = NULL;
    memset(name, 'k', LONG);
    assert_true(asprintf(&text, "\"ID\",\"Kernel Name\"\n\"0\",\"%s\"\n", name) > 0);
    free(name);
    cen_profile *p = parse(text);
    assert_int_equal(strlen(cen_profile_get(p, 0)->kernel), 4095);
    cen_profile_free(p);
    free(text);
}

/* ---- values ---- */

static const cen_profile_row *one(cen_profile **p, const char *metric, const char *unit,
                                  const char *text) {
    char csv[1024];
    cen_profile_free(*p);
    snprintf(csv, sizeof csv,
             "\"ID\",\"Kernel Name\",\"%s\"\n\"\",\"\",\"%s\"\n\"0\",\"k\",\"%s\"\n", metric, unit,
             text);
    *p = parse(csv);
    return cen_profile_get(*p, 0);
}

static void digits_come_in_groups(void **state) {
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0},         {"12", 12},     {"1,234,567.25", 1234567.25},      {"1234567", 1234567},
        {"1.5e+3", 1500}, {"2E-2", 0.02}, {"0.000000000000000000001", 1e-21}};
    static const char *const bad[] = {"n/a",    "",     "nan", "inf",  "-1", "1,23",
                                      "1,2345", "0x10", "1 2", "1e31", ",1", "1,",
                                      "1.2.3",  "1e",   " 1",  "12,"};
    cen_profile *p = NULL;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        near(value(one(&p, "lts__t_bytes.sum", "byte", good[i].text), CEN_PROFILE_L2_BYTES),
             good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[128];
        snprintf(why, sizeof why, "lts__t_bytes.sum is '%s'", *bad[i] ? bad[i] : "nothing");
        missing(one(&p, "lts__t_bytes.sum", "byte", bad[i]), CEN_PROFILE_L2_BYTES, why);
    }
    missing(one(&p, "gpu__time_duration.sum", "fortnight", "2"), CEN_PROFILE_SECONDS,
            "gpu__time_duration.sum is '2 fortnight'");
    missing(one(&p, "dram__throughput" PEAK, "%", "1e21"), CEN_PROFILE_DRAM_SHARE,
            "dram__throughput" PEAK " is '1e21'");
    missing(one(&p, "lts__t_sector_hit_rate.pct", "%", "1000.5"), CEN_PROFILE_L2_HIT,
            "lts__t_sector_hit_rate.pct is '1000.5'");
    near(value(one(&p, "dram__throughput" PEAK, "%", "103"), CEN_PROFILE_DRAM_SHARE), 1.03);
    cen_profile_free(p);
}

static void a_second_name_stands_in(void **state) {
    cen_profile *p = NULL;
    near(value(one(&p, "gpu__dram_throughput" PEAK, "%", "50"), CEN_PROFILE_DRAM_SHARE), 0.5);
    near(value(one(&p, "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", "%", "25"),
               CEN_PROFILE_LOAD_BYTES),
         8);
    cen_profile_free(p);
    p = parse("ID,Kernel Name,gpu__dram_throughput" PEAK ",dram__throughput" PEAK "\n,,%,%\n"
              "0,k,50,40\n1,k,30,n/a\n");
    near(value(cen_profile_get(p, 0), CEN_PROFILE_DRAM_SHARE), 0.35); /* without times: the mean */
    cen_profile_free(p);
    p = parse("ID,Kernel Name,dram__throughput" PEAK ",gpu__dram_throughput" PEAK "\n,,%,%\n"
              "0,k,40,50\n");
    near(value(cen_profile_get(p, 0), CEN_PROFILE_DRAM_SHARE), 0.4);
    cen_profile_free(p);
}

static void a_figure_needs_every_launch(void **state) {
    cen_profile *p = parse("ID,Kernel Name,lts__t_bytes.sum\n,,byte\n0,k,50\n1,k,n/a\n");
    missing(cen_profile_get(p, 0), CEN_PROFILE_L2_BYTES, "lts__t_bytes.sum is 'n/a'");
    cen_profile_free(p);
}

static const char *const op_names[] = {"fadd", "fmul", "ffma", "dadd", "dmul",
                                       "dfma", "hadd", "hmul", "hfma"};

/* A recording of one launch with these operations, of each kind one, and more columns. */
static const cen_profile_row *operations(cen_profile **p, const char *names, const char *values) {
    char csv[4096];
    int n = snprintf(csv, sizeof csv, "ID,Kernel Name%s", names);
    for (size_t i = 0; i < 9; i++) {
        n += snprintf(csv + n, sizeof csv - (size_t)n, "," OP "%s_pred_on.sum", op_names[i]);
    }
    snprintf(csv + n, sizeof csv - (size_t)n, "\n0,k%s,1,10,100,1000,10000,100000,1,1,1\n", values);
    cen_profile_free(*p);
    *p = parse(csv);
    return cen_profile_get(*p, 0);
}

static void operations_are_counted(void **state) {
    cen_profile *p = NULL;
    const cen_profile_row *row = operations(&p, ",sm__pipe_tensor_cycles_active" PEAK, ",0");
    near(value(row, CEN_PROFILE_FP32), 1 + 10 + 2 * 100);
    near(value(row, CEN_PROFILE_FP64), 1000 + 10000 + 2 * 100000);
    near(value(row, CEN_PROFILE_FP16), 2 + 2 + 4);
    near(value(row, CEN_PROFILE_TENSOR), 0); /* idle tensor cores made none */
    near(value(row, CEN_PROFILE_OPERATIONS), 211 + 211000 + 8);
    missing(row, CEN_PROFILE_INTENSITY, "dram__bytes_read.sum is not in the recording");
    row = operations(&p,
                     ",sm__ops_path_tensor_src_bf16_dst_fp32.sum,"
                     "sm__ops_path_tensor_src_fp16.sum,"
                     "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
                     ",1000,200,200");
    near(value(row, CEN_PROFILE_TENSOR), 1200); /* fp16 is counted once */
    row = operations(&p,
                     ",sm__ops_path_tensor_src_bf16_dst_fp32.sum,"
                     "sm__pipe_tensor_cycles_active" PEAK,
                     ",0,40");
    missing(row, CEN_PROFILE_TENSOR,
            "tensor cores worked, and the recording has no counter of their operations' type");
    missing(row, CEN_PROFILE_OPERATIONS, row->figures[CEN_PROFILE_TENSOR].missing);
    cen_profile_free(p);
}

/* ---- verdicts ---- */

typedef struct shares {
    const char *dram, *l2, *l1, *compute, *ns, *waves, *more_names, *more;
} shares;

static const cen_profile_row *judge(cen_profile **p, const shares *s) {
    char csv[2048];
    snprintf(
        csv, sizeof csv,
        "ID,Kernel Name,dram__throughput" PEAK ",lts__throughput" PEAK ",l1tex__throughput" PEAK
        ",sm__instruction_throughput" PEAK
        ",gpu__time_duration.sum,launch__waves_per_multiprocessor%s\n0,k,%s,%s,%s,%s,%s,%s%s\n",
        s->more_names ? s->more_names : "", s->dram, s->l2, s->l1, s->compute, s->ns, s->waves,
        s->more ? s->more : "");
    cen_profile_free(*p);
    *p = parse(csv);
    return cen_profile_get(*p, 0);
}

#define CONFLICT                                                                                   \
    ",l1tex__data_pipe_lsu_wavefronts_mem_shared.sum,"                                             \
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,"                                          \
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
#define LIMITS                                                                                     \
    ",launch__occupancy_limit_registers,launch__occupancy_limit_shared_mem,"                       \
    "launch__occupancy_limit_warps,launch__occupancy_limit_blocks,"                                \
    "sm__maximum_warps_per_active_cycle_pct"

static void verdicts_follow_from_shares(void **state) {
    static const struct {
        shares s;
        cen_profile_bound bound;
        const char *advice;
    } cases[] = {
        {{"91", "50", "40", "20", "90000", "20", NULL, NULL},
         CEN_PROFILE_BY_DRAM,
         "move fewer bytes"},
        {{"70", "50", "40", "20", "90000", "20", ",lts__t_sector_hit_rate.pct", ",33"},
         CEN_PROFILE_BY_DRAM,
         "L2 hits 33%"},
        {{"30", "75", "40", "20", "90000", "20", NULL, NULL},
         CEN_PROFILE_BY_L2,
         "keep what is read again closer"},
        {{"75", "94", "23", "4", "90000", "20", ",lts__t_sector_hit_rate.pct", ",9"},
         CEN_PROFILE_BY_DRAM,
         "L2 hits 9%"},
        {{"75", "94", "23", "4", "90000", "20", ",lts__t_sector_hit_rate.pct", ",50"},
         CEN_PROFILE_BY_L2,
         "keep what is read again closer"},
        {{"74", "94", "23", "4", "90000", "20", ",lts__t_sector_hit_rate.pct", ",9"},
         CEN_PROFILE_BY_L2,
         "keep what is read again closer"},
        {{"30", "50", "80", "20", "90000", "20", CONFLICT, ",400,300,4"},
         CEN_PROFILE_BY_L1,
         "bank conflicts make 4.0 times"},
        {{"30", "50", "80", "20", "90000", "20", CONFLICT, ",400,0,4"},
         CEN_PROFILE_BY_L1,
         "uncoalesced loads use 4.0"},
        {{"30", "50", "59", "60", "90000", "0.5", NULL, NULL},
         CEN_PROFILE_BY_COMPUTE,
         "compute less"},
        {{"30", "50", "40", "20", "90000", "20", LIMITS, ",2,1,8,32,12.5"},
         CEN_PROFILE_BY_LATENCY,
         "shared memory allow only 12% of the warps"},
        {{"30", "50", "40", "20", "90000", "20", NULL, NULL},
         CEN_PROFILE_BY_LATENCY,
         "more work in flight"},
        {{"3", "5", "4", "2", "90000", "0.25", NULL, NULL},
         CEN_PROFILE_BY_SMALL,
         "its blocks fill 25% of the device"},
        {{"3", "5", "4", "2", "4900", "20", NULL, NULL},
         CEN_PROFILE_BY_SMALL,
         "launches cost as much"},
    };
    cen_profile *p = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cen_profile_row *row = judge(&p, &cases[i].s);
        if (row->bound != cases[i].bound ||
            strncmp(row->advice, cases[i].advice, strlen(cases[i].advice))) {
            print_message("case %zu: %s: %s\n", i, cen_profile_bound_name(row->bound), row->advice);
            fail();
        }
    }
    const shares lacking = {"99", "50", "40", "n/a", "90000", "20", NULL, NULL};
    const cen_profile_row *row = judge(&p, &lacking); /* what is not known may be the busiest */
    assert_int_equal(row->bound, CEN_PROFILE_BY_UNKNOWN);
    assert_string_equal(row->reason, "sm__instruction_throughput" PEAK " is 'n/a'");
    cen_profile_free(p);
}

/* ---- refusals ---- */

static void what_is_off_is_named(void **state) {
    refused(CEN_ERR_NOT_FOUND, "==PROF== Connected\n==WARNING== No kernels were profiled.\n",
            "f: no kernel was profiled");
    refused(CEN_ERR_NOT_FOUND, "==ERROR== Failed to find metric x\n==ERROR== second\n",
            "f: no kernel was profiled; ncu: Failed to find metric x");
    refused(CEN_ERR_PERMISSION, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            "f: ncu may not count (ERR_NVGPUCTRPERM)");
    refused(CEN_ERR_NOT_FOUND, "ID,Kernel Name,gpu__time_duration.sum\n,,ns\n",
            "f: no kernel was profiled");
    refused(CEN_ERR_FORMAT, "NVR\n\x01\n",
            "f: no recording: neither a table as 'ncu --csv --page raw' writes it nor a line of "
            "ncu's own");
    refused(CEN_ERR_TRUNCATED, "\"ID\",\"Kernel Name\",\"x\"\n\"0\",\"k\",\"1\"\n\"1\",\"k",
            "f: line 3: ends within a quoted field; the file is cut off, as by a full disk");
    refused(CEN_ERR_TRUNCATED, "\"ID\",\"Kernel Name\",\"x\"\n\"0\",\"k\",\"1\"\n\"1\",\"k\"",
            "f: line 3: 2 fields; the table's head has 3; the file is cut off, as by a full disk");
    static const char *const devices[] = {"-5",    "1e400", "99999999999999999999999",
                                          "10000", "0x1",   " 1"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char text[128], words[128];
        snprintf(text, sizeof text, "ID,Kernel Name,Device\n0,k,0\n1,k,%s\n", devices[i]);
        snprintf(words, sizeof words,
                 "f: line 3: Device: '%s' is not the number of a device, 0 to 9999", devices[i]);
        refused(CEN_ERR_FORMAT, text, words);
    }
    refused(CEN_ERR_FORMAT, "ID,Kernel Name,x\n0,k,1,2\n1,k,1\n",
            "f: line 2: 4 fields; the table's head has 3");
    refused(CEN_ERR_FORMAT, "\"ID\",\"Kernel Name\"\n\"0\",\"a\nb\"\"\n\"\n\"1\",\"c\",\"\"\n",
            "f: line 5: 3 fields; the table's head has 2");
    refused(CEN_ERR_FORMAT, "\"ID\",\"Kernel Name\"\n\"0\"k,\"\n\"\n",
            "f: line 2: a comma is expected behind field 1");
    cen_profile *p = NULL;
    assert_int_equal(cen_profile_read_memory("f", "", 0, &p), CEN_ERR_TRUNCATED);
    assert_string_equal(cen_log_last_error(), "f: the file is empty");
    assert_int_equal(cen_profile_read_memory("f", "\"ID\",\"Kernel Name\"\n\"0\",\"\0\"\n", 27, &p),
                     CEN_ERR_FORMAT);
    assert_string_equal(cen_log_last_error(),
                        "f: line 2: field 2 has a NUL byte; text is expected");
    assert_int_equal(cen_profile_read("/nonexistent", &p), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_profile_read(NULL, &p), CEN_ERR_INVALID);
    assert_int_equal(cen_profile_read_memory(NULL, "", 0, &p), CEN_ERR_INVALID);
    assert_null(p);
}

static void too_many_columns_are_refused(void **state) {
    enum { COLUMNS = 70000 };
    char *commas = calloc(1, COLUMNS + 1), *text = NULL;
    memset(commas, ',', COLUMNS);
    assert_true(asprintf(&text, "ID,Kernel Name%s", commas) > 0);
    free(commas);
    refused(CEN_ERR_FORMAT, text, "f: line 1: more than 65536 fields");
    free(text);
}

static void too_many_kernels_are_refused(void **state) {
    enum { KERNELS = 65600 };
    char *text = calloc(KERNELS, 16), *at = text;
    at += sprintf(at, "ID,Kernel Name\n");
    for (int i = 0; i < KERNELS; i++) {
        at += sprintf(at, "0,%d\n", i);
    }
    refused(CEN_ERR_FORMAT, text, "f: line 65538: more than 65536 kernels in different shapes");
    free(text);
}

/* ---- what to ask for ---- */

static bool lists(const char *metrics, const char *name) {
    const char *at = strstr(metrics, name);
    return at && (at == metrics || at[-1] == ',') && (!at[strlen(name)] || at[strlen(name)] == ',');
}

static void only_what_is_offered_is_asked_for(void **state) {
    char *metrics = NULL;
    assert_int_equal(cen_profile_metrics(NULL, &metrics), CEN_OK);
    assert_true(lists(metrics, "dram__throughput" PEAK));
    assert_true(lists(metrics, "dram__bytes_read.sum"));
    assert_true(lists(metrics, OP "ffma_pred_on.sum"));
    assert_false(lists(metrics, OP "ffma2_pred_on.sum"));
    assert_true(lists(metrics, "launch__registers_per_thread"));
    free(metrics);
    assert_int_equal(cen_profile_metrics("Device NVIDIA X\n"
                                         "dram__bytes_op_read    # of bytes\n"
                                         "\"dram__bytes_op_write\",\"# of bytes\"\n"
                                         "dram__throughput_else\n"
                                         "smsp__sass_thread_inst_executed_op_ffma_pred_on  # x\n",
                                         &metrics),
                     CEN_OK);
    assert_true(lists(metrics, "dram__bytes_op_read.sum"));
    assert_true(lists(metrics, "dram__bytes_op_write.sum"));
    assert_true(lists(metrics, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"));
    assert_true(lists(metrics, "memory_l1_wavefronts_shared"));
    assert_false(lists(metrics, "dram__throughput" PEAK));
    assert_false(lists(metrics, OP "ffma_pred_on.sum"));
    free(metrics);
    assert_int_equal(cen_profile_metrics("==ERROR== no device\n", &metrics), CEN_OK);
    assert_true(lists(metrics, "dram__throughput" PEAK));
    free(metrics);
    assert_int_equal(cen_profile_metrics(NULL, NULL), CEN_ERR_INVALID);
}

static void names_are_told(void **state) {
    assert_string_equal(cen_profile_key(CEN_PROFILE_WAVES), "waves");
    assert_string_equal(cen_profile_key(CEN_PROFILE_FIGURES), "?");
    assert_string_equal(cen_profile_bound_name(CEN_PROFILE_BY_L2), "memory-bound at L2");
    assert_string_equal(cen_profile_bound_name(CEN_PROFILE_BOUNDS), "?");
    assert_string_equal(cen_sample_key(CEN_SAMPLE_DRAM), "dram");
    assert_string_equal(cen_sample_text(CEN_SAMPLE_SHARES), "?");
}

static void moments_are_joined_by_their_lengths(void **state) {
    cen_sample_moment m[3] = {{.seconds = 1, .length = 1, .shares = {0.5, 1}},
                              {.seconds = 4, .length = 3, .shares = {0.9, -1}},
                              {.seconds = 5, .length = 1, .shares = {0.25, 0}}};
    assert_int_equal(ceni_moments_join(m, 3), 2);
    near(m[0].seconds, 4);
    near(m[0].length, 4);
    near(m[0].shares[CEN_SAMPLE_SM], (0.5 + 3 * 0.9) / 4);
    assert_true(m[0].shares[CEN_SAMPLE_OCCUPANCY] < 0); /* half of it is not known */
    near(m[1].seconds, 5);
    near(m[1].shares[CEN_SAMPLE_SM], 0.25);
    assert_int_equal(ceni_moments_join(m, 0), 0);
}

/* ---- failures ---- */

static void memory_may_run_out_anywhere(void **state) {
    for (int64_t n = 1;; n++) {
        cen_profile *p = NULL;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, true);
        cen_status status = cen_profile_read(FOLDER "strided.csv", &p);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        if (!status) {
            assert_true(n > 20);
            cen_profile_free(p);
            break;
        }
        assert_int_equal(status, CEN_ERR_HOST_MEMORY);
        assert_null(p);
    }
    char *metrics = NULL;
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, true);
    assert_int_equal(cen_profile_metrics(NULL, &metrics), CEN_ERR_HOST_MEMORY);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
    assert_null(metrics);
}

static void reading_may_fail_anywhere(void **state) {
    for (int64_t n = 1;; n++) {
        cen_profile *p = NULL;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], n, true);
        cen_status status = cen_profile_read(FOLDER "strided.csv", &p);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 0, false);
        if (!status) {
            assert_true(n > 2);
            cen_profile_free(p);
            break;
        }
        assert_int_equal(status, CEN_ERR_IO);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strided_copy_is_uncoalesced),
        cmocka_unit_test(a_naive_product_is_bound_at_l1),
        cmocka_unit_test(a_tuned_product_is_bound_by_arithmetic),
        cmocka_unit_test(details_are_gathered_by_launch),
        cmocka_unit_test(tables_may_follow_each_other),
        cmocka_unit_test(without_units_they_are_base_units),
        cmocka_unit_test(names_hold_anything),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(digits_come_in_groups),
        cmocka_unit_test(a_second_name_stands_in),
        cmocka_unit_test(a_figure_needs_every_launch),
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(verdicts_follow_from_shares),
        cmocka_unit_test(what_is_off_is_named),
        cmocka_unit_test(too_many_columns_are_refused),
        cmocka_unit_test(too_many_kernels_are_refused),
        cmocka_unit_test(only_what_is_offered_is_asked_for),
        cmocka_unit_test(names_are_told),
        cmocka_unit_test(moments_are_joined_by_their_lengths),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(reading_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
