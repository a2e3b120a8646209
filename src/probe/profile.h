/* What the files of the profile share: comma-separated values, the counters that are looked for in
 * them, and kernels while they are put together. */
#ifndef CENI_PROFILE_H
#define CENI_PROFILE_H

#include "cenote/profile.h"

/* ---- comma-separated values (profile_csv.c) ---- */

/* Records of RFC 4180, in memory. Zero-initialise, and set `name`, `at` and `end`. */
typedef struct ceni_csv {
    const char *name; /* for messages */
    const char *at, *end;
    size_t line, next_line; /* of the record's beginning and of its end; 0: none was read */
    char *text;             /* the record's fields, each ending with NUL */
    size_t length, room;
    size_t *fields; /* where each begins */
    size_t count, capacity;
} ceni_csv;

/* Reads a record, which ends with a line or with the text. CEN_ERR_NOT_FOUND, not logged: the text
 * is over; CEN_ERR_TRUNCATED: it ends within a quoted field; CEN_ERR_FORMAT; CEN_ERR_HOST_MEMORY.
 */
cen_status ceni_csv_next(ceni_csv *csv);
/* Passes over a line that is no record. */
void ceni_csv_skip_line(ceni_csv *csv);
/* "" past the last. Valid until the next record. */
const char *ceni_csv_field(const ceni_csv *csv, size_t index);
void ceni_csv_free(ceni_csv *csv);

/* ---- counters (profile_metrics.c) ---- */

/* A term has one counter or several names for it, of which the first that is recorded counts: term,
 * name, what a unit of it is worth here, and whether sm_90 has it. docs/profile.md has them. */
#define CENI_PEAK ".avg.pct_of_peak_sustained_elapsed"
#define CENI_BUSY ".avg.pct_of_peak_sustained_active"
#define CENI_TERM_MAP(X)                                                                           \
    X(TIME, "gpu__time_duration.sum", 1, true)                                                     \
    X(DRAM, "dram__throughput" CENI_PEAK, 0.01, true)                                              \
    X(DRAM, "gpu__dram_throughput" CENI_PEAK, 0.01, true)                                          \
    X(DRAM_READ, "dram__bytes_read.sum", 1, true)                                                  \
    X(DRAM_READ, "dram__bytes_op_read.sum", 1, false)                                              \
    X(DRAM_WRITE, "dram__bytes_write.sum", 1, true)                                                \
    X(DRAM_WRITE, "dram__bytes_op_write.sum", 1, false)                                            \
    X(L2, "lts__throughput" CENI_PEAK, 0.01, true)                                                 \
    X(L2, "lts__t_sectors" CENI_PEAK, 0.01, true)                                                  \
    X(L2_HIT, "lts__t_sector_hit_rate.pct", 0.01, true)                                            \
    X(L2_BYTES, "lts__t_bytes.sum", 1, true)                                                       \
    X(L1, "l1tex__throughput" CENI_PEAK, 0.01, true)                                               \
    X(L1, "l1tex__throughput" CENI_BUSY, 0.01, true)                                               \
    X(L1_FEED, "sm__memory_throughput" CENI_PEAK, 0.01, true)                                      \
    X(L1_FEED, "sm__memory_throughput" CENI_BUSY, 0.01, true)                                      \
    X(L1_HIT, "l1tex__t_sector_hit_rate.pct", 0.01, true)                                          \
    X(L1_BYTES, "l1tex__t_bytes.sum", 1, true)                                                     \
    X(COMPUTE, "sm__instruction_throughput" CENI_PEAK, 0.01, true)                                 \
    X(COMPUTE, "sm__instruction_throughput" CENI_BUSY, 0.01, true)                                 \
    X(TENSOR_PIPE, "sm__pipe_tensor_cycles_active" CENI_PEAK, 0.01, true)                          \
    X(TENSOR_PIPE, "sm__pipe_tensor_cycles_active" CENI_BUSY, 0.01, true)                          \
    X(TENSOR_PIPE, "sm__inst_executed_pipe_tensor" CENI_BUSY, 0.01, false)                         \
    X(LOAD, "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", 1, true)            \
    X(LOAD, "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", 0.32, true)           \
    X(STORE, "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio", 1, true)           \
    X(STORE, "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct", 0.32, true)          \
    X(LOAD_SECTORS, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1, true)                     \
    X(STORE_SECTORS, "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 1, true)                    \
    X(SHARED, "memory_l1_wavefronts_shared", 1, true)                                              \
    X(SHARED_IDEAL, "memory_l1_wavefronts_shared_ideal", 1, true)                                  \
    X(SHARED_ALL, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1, true)                       \
    X(CONFLICTS, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1, true)                    \
    CENI_ARITHMETIC_MAP(X)                                                                         \
    CENI_TENSOR_MAP(X)                                                                             \
    X(WARPS, "sm__warps_active" CENI_BUSY, 0.01, true)                                             \
    X(WARPS_MOST, "sm__maximum_warps_per_active_cycle_pct", 0.01, true)                            \
    X(REGISTERS, "launch__registers_per_thread", 1, true)                                          \
    X(WAVES, "launch__waves_per_multiprocessor", 1, true)                                          \
    X(LIMIT_REGISTERS, "launch__occupancy_limit_registers", 1, true)                               \
    X(LIMIT_SHARED, "launch__occupancy_limit_shared_mem", 1, true)                                 \
    X(LIMIT_WARPS, "launch__occupancy_limit_warps", 1, true)                                       \
    X(LIMIT_BLOCKS, "launch__occupancy_limit_blocks", 1, true)

/* Instructions of threads, worth the operations that one makes; those of half precision work on
 * pairs. */
#define CENI_OP(X, term, op, worth, usual)                                                         \
    X(term, "sm__sass_thread_inst_executed_op_" op "_pred_on.sum", worth, usual)                   \
    X(term, "smsp__sass_thread_inst_executed_op_" op "_pred_on.sum", worth, usual)
#define CENI_ARITHMETIC_MAP(X)                                                                     \
    CENI_OP(X, FADD, "fadd", 1, true)                                                              \
    CENI_OP(X, FMUL, "fmul", 1, true)                                                              \
    CENI_OP(X, FFMA, "ffma", 2, true)                                                              \
    CENI_OP(X, FADD2, "fadd2", 2, false)                                                           \
    CENI_OP(X, FMUL2, "fmul2", 2, false)                                                           \
    CENI_OP(X, FFMA2, "ffma2", 4, false)                                                           \
    CENI_OP(X, DADD, "dadd", 1, true)                                                              \
    CENI_OP(X, DMUL, "dmul", 1, true)                                                              \
    CENI_OP(X, DFMA, "dfma", 2, true)                                                              \
    CENI_OP(X, HADD, "hadd", 2, true)                                                              \
    CENI_OP(X, HMUL, "hmul", 2, true)                                                              \
    CENI_OP(X, HFMA, "hfma", 4, true)

/* Operations of tensor cores by the type of their operands. */
#define CENI_TENSOR_MAP(X)                                                                         \
    X(T_BF16, "sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1, true)                                \
    X(T_TF32, "sm__ops_path_tensor_src_tf32_dst_fp32.sum", 1, true)                                \
    X(T_FP64, "sm__ops_path_tensor_src_fp64.sum", 1, true)                                         \
    X(T_INT8, "sm__ops_path_tensor_src_int8.sum", 1, true)                                         \
    X(T_FP16, "sm__ops_path_tensor_src_fp16.sum", 1, true)                                         \
    X(T_FP16_16, "sm__ops_path_tensor_src_fp16_dst_fp16.sum", 1, false)                            \
    X(T_FP16_32, "sm__ops_path_tensor_src_fp16_dst_fp32.sum", 1, false)                            \
    X(T_FP8, "sm__ops_path_tensor_src_fp8.sum", 1, false)                                          \
    X(T_FP8_OFF, "sm__ops_path_tensor_src_fp8_sparsity_off.sum", 1, false)                         \
    X(T_FP8_ON, "sm__ops_path_tensor_src_fp8_sparsity_on.sum", 1, false)

typedef enum ceni_term {
    CENI_TIME,
    CENI_DRAM,
    CENI_DRAM_READ,
    CENI_DRAM_WRITE,
    CENI_L2,
    CENI_L2_HIT,
    CENI_L2_BYTES,
    CENI_L1,
    CENI_L1_FEED,
    CENI_L1_HIT,
    CENI_L1_BYTES,
    CENI_COMPUTE,
    CENI_TENSOR_PIPE,
    CENI_LOAD,
    CENI_STORE,
    CENI_LOAD_SECTORS,
    CENI_STORE_SECTORS,
    CENI_SHARED,
    CENI_SHARED_IDEAL,
    CENI_SHARED_ALL,
    CENI_CONFLICTS,
    CENI_FADD,
    CENI_FMUL,
    CENI_FFMA,
    CENI_FADD2,
    CENI_FMUL2,
    CENI_FFMA2,
    CENI_DADD,
    CENI_DMUL,
    CENI_DFMA,
    CENI_HADD,
    CENI_HMUL,
    CENI_HFMA,
    CENI_T_BF16,
    CENI_T_TF32,
    CENI_T_FP64,
    CENI_T_INT8,
    CENI_T_FP16,
    CENI_T_FP16_16,
    CENI_T_FP16_32,
    CENI_T_FP8,
    CENI_T_FP8_OFF,
    CENI_T_FP8_ON,
    CENI_WARPS,
    CENI_WARPS_MOST,
    CENI_REGISTERS,
    CENI_WAVES,
    CENI_LIMIT_REGISTERS,
    CENI_LIMIT_SHARED,
    CENI_LIMIT_WARPS,
    CENI_LIMIT_BLOCKS,
    CENI_TERMS
} ceni_term;

typedef struct ceni_counter {
    ceni_term term;
    const char *name;
    double worth;
    bool usual; /* sm_90 has it */
} ceni_counter;

/* In the order of the map: of a term, the one to be preferred first. */
extern const ceni_counter ceni_counters[];
extern const size_t ceni_counter_count;

/* The counter of that name, as an index; ceni_counter_count: it is none of ours. */
size_t ceni_counter_find(const char *name);
/* The name that a term is asked for by. */
const char *ceni_term_name(ceni_term term);

/* The value of a counter from the words of the recording, in seconds, bytes, or what its worth
 * makes of it; false: the words are no such thing. */
bool ceni_counter_parse(size_t counter, const char *value, const char *unit, double *number);

/* ---- kernels (profile_read.c) ---- */

enum { CENI_PROFILE_ROWS = 1 << 16, CENI_PROFILE_COLUMNS = 1 << 16, CENI_PROFILE_NAME = 4096 };
#define CENI_PROFILE_BYTES ((size_t)256 << 20)

/* What is known of a term over the launches of a row. */
typedef struct ceni_sum {
    uint64_t known;      /* launches that have it */
    double total, timed; /* plain, and each times its launch's time */
    char odd[32];        /* what a launch had in its place, if it had something */
} ceni_sum;

typedef struct ceni_profile_row {
    cen_profile_row out;
    ceni_sum sums[CENI_TERMS];
    char *name;
    struct ceni_profile_row *next; /* with the same hash */
} ceni_profile_row;

struct cen_profile {
    ceni_profile_row **rows;
    size_t count, capacity;
    char **texts; /* that rows point at */
    size_t text_count, text_capacity;
    bool failed; /* memory ran out for one of them */
};

/* A text that lives as the profile does; "" if there is no memory, which the profile remembers. */
const char *ceni_profile_text(cen_profile *profile, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- figures and verdicts (profile_figures.c, profile_judge.c) ---- */

/* Works out a row's figures from its sums. */
void ceni_profile_figure(cen_profile *profile, ceni_profile_row *row);
/* Then its verdict. */
void ceni_profile_judge(cen_profile *profile, ceni_profile_row *row);

#endif
