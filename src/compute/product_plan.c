/* Which kernels can do a product, in which order, and their launches. */
#include "compute/product.h"

#include <string.h>

#include "base/log.h"
#include "dev/dev.h"

static uint32_t tiles_of(uint32_t elements, uint32_t tile) {
    return elements / tile + (elements % tile != 0);
}

/* Blocks for tiles of `rows` x `cols`; 0: more than a grid has. */
static uint32_t blocks_of(const ceni_product_args *p, uint32_t rows, uint32_t cols) {
    uint64_t blocks = (uint64_t)tiles_of(p->m, rows) * tiles_of(p->n, cols);
    return blocks <= INT32_MAX ? (uint32_t)blocks : 0;
}

typedef struct list {
    const ceni_product_args *args;
    cen_product_kernel *kernels;
    size_t count;
} list;

static void add(list *l, const char *name, const uint32_t tile[3], uint32_t stages,
                uint32_t threads, uint32_t shared_bytes) {
    uint32_t blocks = blocks_of(l->args, tile[0], tile[1]);
    if (blocks) {
        l->kernels[l->count++] = (cen_product_kernel){
            name, {tile[0], tile[1], tile[2]}, stages, blocks, threads, shared_bytes};
    }
}

/* Of four kernels' names that of the layouts that lie in memory. */
static const char *layout(const ceni_product_args *p, const char *const names[4]) {
    return names[(p->transpose_a ? 2 : 0) + (p->transpose_b ? 1 : 0)];
}

/* The names that the table has for `base`, A's layout first. */
#define LAYOUTS(base)                                                                              \
    (const char *const[4]) {                                                                       \
        base "_nn", base "_nt", base "_tn", base "_tt"                                             \
    }

static void add_fp32(list *l) {
    static const uint32_t tile[3] = {CENI_SIMT_TILE, CENI_SIMT_TILE, CENI_FP32_DEPTH};
    static const uint32_t rung[3] = {CENI_LADDER_TILE, CENI_LADDER_TILE, CENI_LADDER_TILE};
    static const uint32_t element[3] = {CENI_LADDER_TILE, CENI_LADDER_TILE, 1};
    const uint32_t threads = CENI_LADDER_TILE * CENI_LADDER_TILE;
    add(l, layout(l->args, LAYOUTS("cen_product_fp32")), tile, 2, CENI_TILE_THREADS,
        CENI_FP32_SHARED);
    add(l, "cen_product_shared", rung, 1, threads, 2 * threads * (uint32_t)sizeof(float));
    add(l, "cen_product_coalesced", element, 1, threads, 0);
    add(l, "cen_product_naive", element, 1, threads, 0);
}

static void add_mma(list *l, const char *name, uint32_t size) {
    const uint32_t tile[3] = {CENI_SIMT_TILE, CENI_SIMT_TILE, CENI_MMA_ROW_BYTES / size};
    add(l, name, tile, CENI_MMA_STAGES, CENI_TILE_THREADS, CENI_MMA_SHARED);
}

/* Rows that a box of columns can be copied from. */
static bool mappable(const ceni_product_args *p) {
    return p->k && (p->wide & CENI_WIDE_A) && (p->wide & CENI_WIDE_B) &&
           p->a_stride < UINT64_C(1) << 39 && p->b_stride < UINT64_C(1) << 39;
}

/* Kernels of one kind, of which the planner takes the one that needs least time first. */
enum { CHOICES = 3 };

/* Kernels of wgmma by the tile that `blocks` blocks make together, and what a column of it costs,
 * beside others: narrow tiles wait for shared memory and L2, and the epilogue weighs more.
 * bench/gpu/product.py --only half conv measures all of them. A pair is taken by name only, until
 * it is seen to be faster: less than 100 would have it taken. */
typedef struct wgmma_kernel {
    uint32_t cols, blocks, cost;
    const char *const *names[2]; /* of FP16 and BF16, by layout; one name of convolutions */
} wgmma_kernel;

/* Kernels that decode B by the rows of their tiles. */
typedef struct coded_kernel {
    uint32_t rows;
    const char *const *names[2]; /* of FP16 and BF16, by layout */
} coded_kernel;

#define NAMES(base)                                                                                \
    { LAYOUTS(base "_fp16"), LAYOUTS(base "_bf16") }
static const wgmma_kernel products[CHOICES] = {
    {256, 1, 100, NAMES("cen_product_wgmma")},
    {128, 1, 110, NAMES("cen_product_wgmma128")},
    {256, 2, 1000, NAMES("cen_product_wgmma_pair")},
};
static const coded_kernel coded_products[CHOICES] = {
    {CENI_SIMT_TILE, NAMES("cen_product_coded")},
    {64, NAMES("cen_product_coded64")},
    {16, NAMES("cen_product_coded16")},
};
#undef NAMES
#define NAMES(base)                                                                                \
    {                                                                                              \
        (const char *const[1]){base "_fp16"}, (const char *const[1]) {                             \
            base "_bf16"                                                                           \
        }                                                                                          \
    }
static const wgmma_kernel convolutions[CHOICES] = {
    {256, 1, 100, NAMES("cen_conv_wgmma256")},
    {128, 1, 110, NAMES("cen_conv_wgmma128")},
    {64, 1, 130, NAMES("cen_conv_wgmma64")},
};
#undef NAMES

/* The choices from the least time on, of equals the first. */
static void order_by(const uint64_t times[CHOICES], uint32_t order[CHOICES]) {
    for (uint32_t i = 0; i < CHOICES; i++) {
        uint32_t at = i;
        for (; at && times[order[at - 1]] > times[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* Rounds of all multiprocessors, times what each does in one. */
static uint64_t wgmma_time(const cen_device *device, const ceni_product_args *p,
                           const wgmma_kernel *kernel) {
    uint32_t places = device->multiprocessors / kernel->blocks;
    uint32_t tiles = blocks_of(p, CENI_WGMMA_ROWS * kernel->blocks, kernel->cols);
    return (uint64_t)tiles_of(tiles, places ? places : 1) * kernel->cols * kernel->cost;
}

/* Blocks stay and take tile after tile. */
static void add_wgmma(const cen_device *device, list *l, const wgmma_kernel *kernel,
                      const char *name, uint32_t shared) {
    const uint32_t tile[3] = {CENI_WGMMA_ROWS * kernel->blocks, kernel->cols, CENI_WGMMA_DEPTH};
    uint32_t places = device->multiprocessors / kernel->blocks;
    size_t before = l->count;
    if (kernel->blocks > 1 && (!places || l->args->m <= CENI_WGMMA_ROWS)) {
        return; /* no room for a pair, or nothing for its second */
    }
    add(l, name, tile, (uint32_t)CENI_WGMMA_STAGES(kernel->cols), CENI_WGMMA_THREADS, shared);
    if (l->count > before) {
        cen_product_kernel *added = &l->kernels[before];
        added->blocks =
            kernel->blocks * (places && added->blocks > places ? places : added->blocks);
    }
}

static void add_all_wgmma(const cen_device *device, list *l, bool is_conv) {
    const ceni_product_args *p = l->args;
    const wgmma_kernel *all = is_conv ? convolutions : products;
    uint32_t order[CHOICES];
    uint64_t times[CHOICES];
    if (device->compute_capability != 90 || !device->backend->tensor_map || !mappable(p)) {
        return;
    }
    for (uint32_t i = 0; i < CHOICES; i++) {
        times[i] = wgmma_time(device, p, &all[i]);
    }
    order_by(times, order);
    for (uint32_t i = 0; i < CHOICES; i++) {
        const wgmma_kernel *kernel = &all[order[i]];
        const char *const *names = kernel->names[p->input == CEN_BF16];
        uint32_t cols = kernel->cols, shared = (uint32_t)CENI_WGMMA_SHARED(cols);
        if (is_conv) {
            shared += CENI_CONV_ROWS_SHARED;
        } else if (cols == CENI_WGMMA_OUT_COLS) {
            shared = (uint32_t)CENI_WGMMA_OUT_SHARED(cols);
        }
        add_wgmma(device, l, kernel, is_conv ? names[0] : layout(p, names), shared);
    }
}

static void add_half(const cen_device *device, list *l) {
    const ceni_product_args *p = l->args;
    add_all_wgmma(device, l, false);
    add_mma(l,
            p->input == CEN_BF16 ? layout(p, LAYOUTS("cen_product_mma_bf16"))
                                 : layout(p, LAYOUTS("cen_product_mma_fp16")),
            2);
}

/* Rounds of all multiprocessors, times what a thread does in one: decoding a column is taken
 * to be as long as copying four rows of A. */
static uint64_t coded_time(const cen_device *device, const ceni_product_args *p, uint32_t rows) {
    uint32_t multiprocessors = device->multiprocessors ? device->multiprocessors : 1;
    uint32_t cols = CENI_CODED_COLS(rows);
    return (uint64_t)tiles_of(blocks_of(p, rows, cols), multiprocessors) * (cols + rows / 4);
}

/* The most shared memory that a block may have, 163 KiB or more counting as that: CUDA C++
 * Programming Guide, "Technical Specifications per Compute Capability". */
static uint32_t shared_most(const cen_device *device) {
    uint32_t capability = device->compute_capability;
    bool small = capability == 86 || capability == 89 || capability / 10 == 12;
    return (small ? 99 : 163) << 10;
}

static void add_coded(const cen_device *device, list *l, const coded_kernel *kernel) {
    uint32_t rows = kernel->rows;
    const uint32_t tile[3] = {rows, CENI_CODED_COLS(rows),
                              CENI_CODED_SLICES(rows) * (CENI_MMA_ROW_BYTES / 2)};
    if (CENI_CODED_SHARED(rows) <= shared_most(device)) {
        add(l, layout(l->args, kernel->names[l->args->input == CEN_BF16]), tile,
            CENI_CODED_STAGES(rows), CENI_TILE_THREADS, CENI_CODED_SHARED(rows));
    }
}

static void add_all_coded(const cen_device *device, list *l) {
    uint32_t order[CHOICES];
    uint64_t times[CHOICES];
    for (uint32_t i = 0; i < CHOICES; i++) {
        times[i] = coded_time(device, l->args, coded_products[i].rows);
    }
    order_by(times, order);
    for (uint32_t i = 0; i < CHOICES; i++) {
        add_coded(device, l, &coded_products[order[i]]);
    }
}

static void add_conv(const cen_device *device, list *l) {
    static const uint32_t tile[3] = {CENI_SIMT_TILE, CENI_SIMT_TILE, CENI_FP32_DEPTH};
    uint8_t type = l->args->input;
    if (type == CEN_FP32) {
        add(l, "cen_conv_fp32", tile, 2, CENI_TILE_THREADS,
            CENI_FP32_SHARED + CENI_CONV_ROWS_SHARED);
        return;
    }
    add_all_wgmma(device, l, true);
    size_t before = l->count;
    add_mma(l, type == CEN_BF16 ? "cen_conv_mma_bf16" : "cen_conv_mma_fp16", 2);
    if (l->count > before) {
        l->kernels[before].shared_bytes += CENI_CONV_ROWS_SHARED;
    }
}

size_t ceni_product_plan(const cen_device *device, const ceni_product_task *task,
                         cen_product_kernel kernels[CENI_PRODUCT_KERNELS_MAX]) {
    list l = {&task->conv.product, kernels, 0};
    if (!l.args->m || !l.args->n) {
        return 0;
    }
    if (task->is_coded) {
        add_all_coded(device, &l);
    } else if (task->is_conv) {
        add_conv(device, &l);
    } else if (l.args->input == CEN_FP32) {
        add_fp32(&l);
    } else if (l.args->input == CEN_INT8) {
        add_mma(&l, "cen_product_mma_int8", 1);
    } else {
        add_half(device, &l);
    }
    return l.count;
}

static cen_status need_device(const cen_device *device) {
    return device ? CEN_OK : ceni_fail(CEN_ERR_INVALID, "product: device is NULL");
}

cen_status ceni_product_list(cen_device *device, const ceni_product_task *task,
                             cen_product_kernel *kernels, size_t capacity, size_t *count) {
    cen_product_kernel all[CENI_PRODUCT_KERNELS_MAX];
    cen_status status = need_device(device);
    if (!status && (!count || (capacity && !kernels))) {
        status = ceni_fail(CEN_ERR_INVALID, "product: %s is NULL", count ? "kernels" : "count");
    }
    if (status) {
        return status;
    }
    size_t found = ceni_product_plan(device, task, all);
    if (capacity) {
        memcpy(kernels, all, (found < capacity ? found : capacity) * sizeof *kernels);
    }
    *count = found;
    return CEN_OK;
}

/* A matrix as the copy engine brings it: boxes of 128 bytes along its rows. `mn`: what a tile has
 * of it across the sum; `along`: rows lie along the sum. */
static cen_status map_matrix(cen_device *device, const ceni_product_args *p, bool is_a, uint32_t mn,
                             ceni_tensor_map *map) {
    uint32_t outer = is_a ? p->m : p->n;
    bool along = is_a ? !p->transpose_a : p->transpose_b;
    const ceni_tiled tiled = {
        .data = is_a ? p->a : p->b,
        .stride = (is_a ? p->a_stride : p->b_stride) * 2,
        .cols = along ? p->k : outer,
        .rows = along ? outer : p->k,
        .box_cols = 64,
        .box_rows = along ? mn : CENI_WGMMA_DEPTH,
        .dtype = (cen_dtype)p->input,
    };
    return ceni_dev_tensor_map(device, &tiled, map);
}

static bool mapped(const cen_product_kernel *kernel) {
    return kernel->threads == CENI_WGMMA_THREADS;
}

/* Kernels of products that take a map of D. */
static bool maps_result(const ceni_product_task *task, const cen_product_kernel *kernel) {
    return mapped(kernel) && !task->is_conv && kernel->tile[1] == CENI_WGMMA_OUT_COLS;
}

static bool rows_of_16_bytes(cen_addr data, uint64_t stride) {
    return data % 16 == 0 && stride % 8 == 0 && stride < UINT64_C(1) << 39;
}

/* Whether the copy engine can take D out, and the kernel has a way to finish what it then takes. */
static bool leaves_in_boxes(const ceni_product_args *p) {
    bool one = !p->residual || p->beta == 0;
    return p->output == p->input && (p->wide & CENI_WIDE_D) && p->n % 8 == 0 && !p->row_scale &&
           !p->col_scale && one && rows_of_16_bytes(p->d, p->d_stride) &&
           (p->beta == 0 || rows_of_16_bytes(p->c, p->c_stride)) &&
           (!p->residual || rows_of_16_bytes(p->residual, p->residual_stride));
}

static cen_status map_result(cen_device *device, const ceni_product_args *p, ceni_tensor_map *map) {
    const ceni_tiled tiled = {
        .data = p->d,
        .stride = p->d_stride * 2,
        .cols = p->n,
        .rows = p->m,
        .box_cols = 64,
        .box_rows = CENI_WGMMA_OUT_ROWS,
        .dtype = (cen_dtype)p->output,
    };
    return ceni_dev_tensor_map(device, &tiled, map);
}

/* What the kernel takes; of D only where it is to go out so, which `product` then says. */
static cen_status map_all(cen_device *device, const ceni_product_task *task,
                          const cen_product_kernel *kernel, ceni_product_args *product,
                          ceni_tensor_map *a, ceni_tensor_map *b, ceni_tensor_map *d) {
    /* Of a pair, each brings a half of the columns. */
    uint32_t halves = kernel->tile[0] / CENI_WGMMA_ROWS;
    cen_status status =
        task->is_conv ? CEN_OK : map_matrix(device, product, true, CENI_WGMMA_ROWS, a);
    status = status ? status : map_matrix(device, product, false, kernel->tile[1] / halves, b);
    if (!status && maps_result(task, kernel) && leaves_in_boxes(product)) {
        product->wide |= CENI_WIDE_BOXES;
        status = map_result(device, product, d);
    }
    return status;
}

static cen_status launch(cen_device *device, const ceni_product_task *task,
                         const cen_product_kernel *kernel, cen_stream stream) {
    const cen_launch shape = {
        {kernel->blocks, 1, 1}, {kernel->threads, 1, 1}, kernel->shared_bytes};
    ceni_product_args product = task->conv.product;
    ceni_conv_args conv = task->conv;
    ceni_codec_job weight = task->weight;
    ceni_tensor_map a, b, d = {{0}};
    void *of_product[] = {&product, &a, &b, &d}, *of_conv[] = {&conv, &b},
         *of_coded[] = {&product, &weight};
    void **args = task->is_conv ? of_conv : task->is_coded ? of_coded : of_product;
    size_t count = task->is_coded || (mapped(kernel) && task->is_conv) ? 2
                   : !mapped(kernel)                                   ? 1
                                                                       : 3;
    count += maps_result(task, kernel);
    cen_status status =
        mapped(kernel) ? map_all(device, task, kernel, &product, &a, &b, &d) : CEN_OK;
    return status ? status : cen_kernel_launch(device, kernel->name, &shape, args, count, stream);
}

/* Kernels that need tensor maps are left out where the driver has none. */
static cen_status launch_first(cen_device *device, const ceni_product_task *task,
                               const cen_product_kernel *kernels, size_t count, cen_stream stream) {
    cen_status status = CEN_ERR_UNSUPPORTED;
    size_t i = 0;
    for (; status == CEN_ERR_UNSUPPORTED && i + 1 < count && mapped(&kernels[i]); i++) {
        cen_status before = ceni_log_expect(CEN_ERR_UNSUPPORTED);
        status = launch(device, task, &kernels[i], stream);
        ceni_log_expect(before);
    }
    return status == CEN_ERR_UNSUPPORTED ? launch(device, task, &kernels[i], stream) : status;
}

cen_status ceni_product_launch(cen_device *device, const ceni_product_task *task,
                               cen_stream stream) {
    cen_product_kernel kernels[CENI_PRODUCT_KERNELS_MAX];
    cen_status status = need_device(device);
    if (status || !task->conv.product.m || !task->conv.product.n) {
        return status;
    }
    size_t count = ceni_product_plan(device, task, kernels);
    if (!count) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "product: %u x %u is more than a grid has blocks for",
                         task->conv.product.m, task->conv.product.n);
    }
    if (!task->kernel) {
        return launch_first(device, task, kernels, count, stream);
    }
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(task->kernel, kernels[i].name)) {
            return launch(device, task, &kernels[i], stream);
        }
    }
    return ceni_fail(CEN_ERR_NOT_FOUND,
                     "product: '%.64s' is no kernel that does this product on %s:%d", task->kernel,
                     device->backend->name, device->ordinal);
}
