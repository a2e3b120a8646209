/* What the files of the judgement on paper share. */
#ifndef CENI_PAPER_H
#define CENI_PAPER_H

#include "cenote/roofline.h"

/* Bytes of an element that is multiplied; 0: of another type, or none. */
uint32_t ceni_multiplied_bytes(cen_dtype dtype);

/* Banks, of tiles and accesses that were checked (banks.c, banks_search.c). */
cen_bank_access ceni_banks_count(const uint32_t *offsets, uint32_t lanes, uint32_t bytes);
uint64_t ceni_banks_accesses(const cen_banks_tile *tile);
cen_bank_access ceni_banks_access(const cen_banks_tile *tile, uint64_t index);
cen_banks_remedy ceni_banks_search(const cen_banks_tile *tile);

/* Chains of operations (chain.c). */
enum { CENI_CHAIN_MAX = 32 };

typedef enum ceni_op_kind {
    CENI_OP_LINEAR,
    CENI_OP_BIAS,
    CENI_OP_SCALE,
    CENI_OP_RESIDUAL,
    CENI_OP_RELU,
    CENI_OP_GELU
} ceni_op_kind;

typedef struct ceni_op {
    ceni_op_kind kind;
    uint64_t in, out; /* columns */
} ceni_op;

typedef struct ceni_chain {
    ceni_op ops[CENI_CHAIN_MAX];
    size_t count;
} ceni_chain;

/* Reads the text for an input of k columns, products being n wide where they do not say. */
cen_status ceni_chain_parse(const char *text, uint64_t k, uint64_t n, ceni_chain *chain);
const char *ceni_op_name(ceni_op_kind kind);
/* Operations for each element of the result, products aside. */
double ceni_op_flops(ceni_op_kind kind);
/* Elements of the operand that comes with an operation on m rows; 0: it has none. */
double ceni_op_operand(const ceni_op *op, double m);

/* What a multiprocessor has, and how it multiplies (tile_block.c). */
typedef enum ceni_math { CENI_MATH_CORES, CENI_MATH_MMA, CENI_MATH_WGMMA } ceni_math;

typedef struct ceni_sm {
    uint32_t sm, shared_bytes, shared_block_bytes; /* of all blocks, of one at most */
    uint32_t multiprocessors;                      /* of the largest product */
    uint64_t l2_bytes;
} ceni_sm;
enum { CENI_SM_WARPS = 64, CENI_SM_BLOCKS = 32, CENI_SM_REGISTERS = 65536, CENI_REGISTERS = 255 };

/* A block: its tile, and how the warps share it. */
typedef struct ceni_block {
    const ceni_sm *sm;
    ceni_math math;
    uint32_t bm, bn, bk, stages;
    uint32_t elem;   /* bytes */
    uint32_t step;   /* columns of K that one instruction takes */
    uint32_t warps;  /* that multiply */
    uint32_t parts;  /* of the tile, each multiplied by a warp, or by four with wgmma */
    uint32_t wm, wn; /* of a part */
    uint32_t threads, registers;
    bool spills;
    uint32_t shared_bytes; /* tiles in flight */
} ceni_block;

/* Chooses what the request leaves open, and checks that a block fits. widest: columns of the widest
 * product; units: multiprocessors. */
cen_status ceni_block_make(const cen_tile_request *request, uint64_t widest, uint32_t units,
                           ceni_block *block);
const ceni_sm *ceni_sm_find(uint32_t sm);

/* Blocks a multiprocessor with that much shared memory each, and what limits them. */
uint32_t ceni_resident(const ceni_sm *sm, uint32_t threads, uint32_t registers, uint64_t shared,
                       const char **limit);

/* The traffic of kernels (tile_traffic.c): operations [from, to) of the chain as one kernel. */
typedef struct ceni_tile {
    const cen_tile_request *request;
    ceni_chain chain;
    ceni_block block;
    bool has_product;
    uint32_t multiprocessors;
    uint64_t l2_bytes;
    double peak_flops, bandwidth;
} ceni_tile;

/* Shared memory of the kernel's block: tiles in flight, and rows that stay between two products. */
uint64_t ceni_tile_shared(const ceni_tile *tile, size_t from, size_t to);
void ceni_tile_kernel(const ceni_tile *tile, size_t from, size_t to, cen_tile_kernel *kernel);
/* Whether a tensor of m rows and that many columns stays in L2 between two kernels. */
bool ceni_tile_stays(const ceni_tile *tile, uint64_t cols);

#endif
