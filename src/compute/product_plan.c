/* Which kernels can do a product, in which order, and their launches. */
#include "compute/product.h"

#include <string.h>

#include "base/log.h"
#include "base/over.h"
#include "compute/check.h"
#include "dev/dev.h"

static uint32_t tiles_of(uint32_t elements, uint32_t tile) {
    return (uint32_t)ceni_over(elements, tile);
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

/* Kernels of FP32 by the columns of their tiles. What a column costs, beside others: to narrow
 * tiles more of A is copied for each multiplication. */
typedef struct fp32_kernel {
    uint32_t cols, cost;
    const char *const *names; /* by layout */
    const char *conv;
} fp32_kernel;

static const fp32_kernel fp32_kernels[] = {
    {CENI_SIMT_TILE, 100, LAYOUTS("cen_product_fp32"), "cen_conv_fp32"},
    {64, 110, LAYOUTS("cen_product_fp32_64"), "cen_conv_fp32_64"},
};

/* The tiles that the multiprocessor with the most of them has, times what each takes. */
static uint64_t fp32_time(const cen_device *device, const ceni_product_args *p,
                          const fp32_kernel *kernel) {
    uint32_t places = device->multiprocessors ? device->multiprocessors : 1;
    uint32_t tiles = blocks_of(p, CENI_SIMT_TILE, kernel->cols);
    return (uint64_t)tiles_of(tiles, places) * kernel->cols * kernel->cost;
}

static void add_all_fp32(const cen_device *device, list *l, bool is_conv) {
    bool narrow =
        fp32_time(device, l->args, &fp32_kernels[1]) < fp32_time(device, l->args, &fp32_kernels[0]);
    for (uint32_t i = 0; i < 2; i++) {
        const fp32_kernel *kernel = &fp32_kernels[i ^ narrow];
        const uint32_t tile[3] = {CENI_SIMT_TILE, kernel->cols, CENI_FP32_DEPTH};
        add(l, is_conv ? kernel->conv : layout(l->args, kernel->names), tile, CENI_FP32_STAGES,
            CENI_FP32_THREADS,
            (uint32_t)CENI_FP32_SHARED(kernel->cols) + (is_conv ? CENI_CONV_ROWS_SHARED : 0));
    }
}

static void add_fp32(const cen_device *device, list *l) {
    static const uint32_t rung[3] = {CENI_LADDER_TILE, CENI_LADDER_TILE, CENI_LADDER_TILE};
    static const uint32_t element[3] = {CENI_LADDER_TILE, CENI_LADDER_TILE, 1};
    const uint32_t threads = CENI_LADDER_TILE * CENI_LADDER_TILE;
    add_all_fp32(device, l, false);
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
enum { CHOICES = 3, BOXES = 4 };

/* Kernels of wgmma by the tile that `blocks` blocks make together, and what a column of it costs,
 * beside others: narrow tiles wait for shared memory and L2, and the epilogue weighs more.
 * bench/gpu/product.py --only half conv measures all of them. A pair is taken by name only, until
 * it is seen to be faster: less than 100 would have it taken. */
typedef struct wgmma_kernel {
    uint32_t cols, blocks, cost, stages, shared;
    const char *const *names[2]; /* of FP16 and BF16, by layout; of convolutions only as they lie */
} wgmma_kernel;

/* Kernels that decode B by the rows of their tiles. */
typedef struct coded_kernel {
    uint32_t rows;
    const char *const *names[2]; /* of FP16 and BF16, by layout */
} coded_kernel;

/* Stages and shared bytes by columns; the latter of kernels that take a map of D. */
#define USUAL(cols)      CENI_WGMMA_STAGES(cols), CENI_WGMMA_SHARED(cols)
#define WITH_BOXES(cols) CENI_WGMMA_STAGES(cols), CENI_WGMMA_OUT_SHARED(cols)
#define NAMES(base)                                                                                \
    { LAYOUTS(base "_fp16"), LAYOUTS(base "_bf16") }
static const wgmma_kernel products[CHOICES] = {
    {256, 1, 100, WITH_BOXES(256), NAMES("cen_product_wgmma")},
    {128, 1, 110, USUAL(128), NAMES("cen_product_wgmma128")},
    {256, 2, 1000, WITH_BOXES(256), NAMES("cen_product_wgmma_pair")},
};
static const coded_kernel coded_products[CHOICES] = {
    {CENI_SIMT_TILE, NAMES("cen_product_coded")},
    {64, NAMES("cen_product_coded64")},
    {16, NAMES("cen_product_coded16")},
};
#undef NAMES
#define NAMES(base)                                                                                \
    {                                                                                              \
        (const char *const[2]){NULL, base "_fp16"}, (const char *const[2]) {                       \
            NULL, base "_bf16"                                                                     \
        }                                                                                          \
    }
static const wgmma_kernel gathered[CHOICES] = {
    {256, 1, 100, USUAL(256) + CENI_CONV_ROWS_SHARED, NAMES("cen_conv_wgmma256")},
    {128, 1, 110, USUAL(128) + CENI_CONV_ROWS_SHARED, NAMES("cen_conv_wgmma128")},
    {64, 1, 130, USUAL(64) + CENI_CONV_ROWS_SHARED, NAMES("cen_conv_wgmma64")},
};
/* By ResNet-50's layers on an H200: warpgroups that take turns lose least between their tiles. */
static const wgmma_kernel boxes[BOXES] = {
    {256, 1, 95, WITH_BOXES(256), NAMES("cen_conv_boxes256")},
    {128, 1, 88, WITH_BOXES(128), NAMES("cen_conv_boxes128")},
    {64, 1, 120, WITH_BOXES(64), NAMES("cen_conv_boxes64")},
    {CENI_HELD_COLS, 1, 135, CENI_HELD_STAGES, CENI_HELD_SHARED, NAMES("cen_conv_held64")},
};
#undef NAMES
#undef USUAL
#undef WITH_BOXES

/* The first `count` choices from the least time on, of equals the first. */
static void order_by(const uint64_t times[], uint32_t count, uint32_t order[]) {
    for (uint32_t i = 0; i < count; i++) {
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
                      const char *name) {
    const uint32_t tile[3] = {CENI_WGMMA_ROWS * kernel->blocks, kernel->cols, CENI_WGMMA_DEPTH};
    uint32_t places = device->multiprocessors / kernel->blocks;
    size_t before = l->count;
    if (kernel->blocks > 1 && (!places || l->args->m <= CENI_WGMMA_ROWS)) {
        return; /* no room for a pair, or nothing for its second */
    }
    add(l, name, tile, kernel->stages, CENI_WGMMA_THREADS, kernel->shared);
    if (l->count > before) {
        cen_product_kernel *added = &l->kernels[before];
        added->blocks =
            kernel->blocks * (places && added->blocks > places ? places : added->blocks);
    }
}

/* Kernels among which time decides. */
typedef struct choices {
    const wgmma_kernel *kernels[CHOICES + BOXES];
    uint32_t count;
} choices;

static void offer(choices *c, const wgmma_kernel *kernels, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        c->kernels[c->count++] = &kernels[i];
    }
}

static void add_choices(const cen_device *device, list *l, const choices *c) {
    const ceni_product_args *p = l->args;
    uint32_t order[CHOICES + BOXES];
    uint64_t times[CHOICES + BOXES];
    for (uint32_t i = 0; i < c->count; i++) {
        times[i] = wgmma_time(device, p, c->kernels[i]);
    }
    order_by(times, c->count, order);
    for (uint32_t i = 0; i < c->count; i++) {
        const wgmma_kernel *kernel = c->kernels[order[i]];
        add_wgmma(device, l, kernel, layout(p, kernel->names[p->input == CEN_BF16]));
    }
}

static bool takes_maps(const cen_device *device, const ceni_product_args *p) {
    return device->compute_capability == 90 && device->backend->tensor_map && mappable(p);
}

static void add_product_mma(list *l) {
    const ceni_product_args *p = l->args;
    add_mma(l,
            p->input == CEN_BF16 ? layout(p, LAYOUTS("cen_product_mma_bf16"))
                                 : layout(p, LAYOUTS("cen_product_mma_fp16")),
            2);
}

static void add_half(const cen_device *device, list *l) {
    choices c = {.count = 0};
    if (takes_maps(device, l->args)) {
        offer(&c, products, CHOICES);
    }
    add_choices(device, l, &c);
    add_product_mma(l);
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
    order_by(times, CHOICES, order);
    for (uint32_t i = 0; i < CHOICES; i++) {
        add_coded(device, l, &coded_products[order[i]]);
    }
}

/* One side of the images, as the copy engine's maps can describe its walk. */
static bool side_walks(uint32_t size, uint32_t filter, uint32_t stride, uint32_t dilation,
                       int32_t pad) {
    int64_t beyond = (int64_t)(filter - 1) * dilation; /* the last tap, from the first */
    return size && stride <= 8 && pad <= 128 && beyond <= 255 && pad - beyond >= -128 &&
           pad - beyond <= 127;
}

/* Whether the copy engine can bring A: whole boxes of channels. */
static bool boxes_fit(const cen_device *device, const ceni_conv_args *c) {
    uint64_t row = (uint64_t)c->width * c->channels * 2, image;
    return device->backend->pixel_map && c->channels % CENI_WGMMA_DEPTH == 0 &&
           !__builtin_mul_overflow(row, c->height, &image) && image < UINT64_C(1) << 40 &&
           side_walks(c->height, c->filter_height, c->stride_y, c->dilation_y, c->pad_y) &&
           side_walks(c->width, c->filter_width, c->stride_x, c->dilation_x, c->pad_x);
}

static void offer_boxes(const cen_device *device, const ceni_conv_args *c, choices *all) {
    const ceni_product_args *p = &c->product;
    bool held = p->n <= CENI_HELD_COLS && p->k <= CENI_HELD_STEPS * CENI_WGMMA_DEPTH;
    if (takes_maps(device, p) && boxes_fit(device, c)) {
        offer(all, boxes, held ? BOXES : BOXES - 1);
    }
}

/* One tap, at each pixel: a plain product of pixels and channels. */
static bool is_plain(const ceni_conv_args *c) {
    return c->filter_height == 1 && c->filter_width == 1 && c->stride_y == 1 && c->stride_x == 1 &&
           !c->pad_y && !c->pad_x;
}

static void add_plain_conv(const cen_device *device, list *l, const ceni_conv_args *c) {
    choices all = {.count = 0};
    if (l->args->input == CEN_FP32) {
        add_fp32(device, l);
        return;
    }
    if (takes_maps(device, l->args)) {
        offer(&all, products, CHOICES);
    }
    offer_boxes(device, c, &all);
    add_choices(device, l, &all);
    add_product_mma(l);
}

static void add_conv(const cen_device *device, list *l, const ceni_conv_args *c) {
    choices in_boxes = {.count = 0}, by_threads = {.count = 0};
    uint8_t type = l->args->input;
    if (type == CEN_FP32) {
        add_all_fp32(device, l, true);
        return;
    }
    offer_boxes(device, c, &in_boxes);
    if (takes_maps(device, l->args)) {
        offer(&by_threads, gathered, CHOICES);
    }
    add_choices(device, l, &in_boxes);
    add_choices(device, l, &by_threads);
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
        (is_plain(&task->conv) ? add_plain_conv : add_conv)(device, &l, &task->conv);
    } else if (l.args->input == CEN_FP32) {
        add_fp32(device, &l);
    } else if (l.args->input == CEN_INT8) {
        add_mma(&l, "cen_product_mma_int8", 1);
    } else {
        add_half(device, &l);
    }
    return l.count;
}

/* With which failures begin. */
static const char *call_of(const ceni_product_task *task) {
    return task->is_conv ? "conv" : "product";
}

cen_status ceni_product_list(cen_device *device, const ceni_product_task *task,
                             cen_product_kernel *kernels, size_t capacity, size_t *count) {
    cen_product_kernel all[CENI_PRODUCT_KERNELS_MAX];
    const char *call = call_of(task);
    cen_status status = ceni_check_device(call, device);
    if (!status && (!count || (capacity && !kernels))) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", call, count ? "kernels" : "count");
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

/* The input of a convolution, by the first pixel that each of the filter's windows has. */
static cen_status map_pixels(cen_device *device, const ceni_conv_args *c, ceni_tensor_map *map) {
    const ceni_pixels pixels = {
        .data = c->product.a,
        .images = c->images,
        .height = c->height,
        .width = c->width,
        .channels = c->channels,
        .low = {-c->pad_x, -c->pad_y},
        .high = {c->pad_x - (int32_t)((c->filter_width - 1) * c->dilation_x),
                 c->pad_y - (int32_t)((c->filter_height - 1) * c->dilation_y)},
        .steps = {c->stride_x, c->stride_y},
        .pixels = CENI_WGMMA_ROWS,
        .dtype = (cen_dtype)c->product.input,
    };
    return ceni_dev_pixel_map(device, &pixels, map);
}

static bool mapped(const cen_product_kernel *kernel) {
    return kernel->threads == CENI_WGMMA_THREADS;
}

static bool takes_conv(const ceni_kernel *entry) {
    return entry->arg_sizes[0] == sizeof(ceni_conv_args);
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

/* What the kernel takes; of D only where it is to go out so, which `c` then says. */
static cen_status map_all(cen_device *device, const ceni_kernel *entry, uint32_t cols,
                          ceni_conv_args *c, ceni_tensor_map maps[3]) {
    ceni_product_args *p = &c->product;
    cen_status status = CEN_OK;
    if (entry->arg_count > 2) {
        status = takes_conv(entry) ? map_pixels(device, c, &maps[0])
                                   : map_matrix(device, p, true, CENI_WGMMA_ROWS, &maps[0]);
    }
    status = status ? status : map_matrix(device, p, false, cols, &maps[1]);
    if (!status && entry->arg_count > 3 && leaves_in_boxes(p)) {
        p->wide |= CENI_WIDE_BOXES;
        status = map_result(device, p, &maps[2]);
    }
    return status;
}

/* A product's or convolution's structure, and of mapped kernels maps of A, B and D: of B alone
 * where the kernel gathers, and not of D where it has no way to take it out so. */
static cen_status launch(cen_device *device, const ceni_product_task *task,
                         const cen_product_kernel *kernel, cen_stream stream) {
    const cen_launch shape = {
        {kernel->blocks, 1, 1}, {kernel->threads, 1, 1}, kernel->shared_bytes};
    const ceni_kernel *entry = ceni_kernel_find(kernel->name);
    ceni_conv_args conv = task->conv;
    ceni_codec_job weight = task->weight;
    ceni_tensor_map maps[3] = {0};
    void *args[] = {takes_conv(entry) ? (void *)&conv : &conv.product, &maps[0], &maps[1],
                    &maps[2]};
    cen_status status = CEN_OK;
    if (task->is_coded) {
        args[1] = &weight;
    } else if (entry->arg_count == 2) {
        args[1] = &maps[1];
    }
    if (mapped(kernel)) {
        /* Of a pair, each brings a half of the columns. */
        uint32_t halves = kernel->tile[0] / CENI_WGMMA_ROWS;
        status = map_all(device, entry, kernel->tile[1] / halves, &conv, maps);
    }
    return status ? status
                  : cen_kernel_launch(device, kernel->name, &shape, args, entry->arg_count, stream);
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
    const char *call = call_of(task);
    cen_status status = ceni_check_device(call, device);
    if (status || !task->conv.product.m || !task->conv.product.n) {
        return status;
    }
    size_t count = ceni_product_plan(device, task, kernels);
    if (!count) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "%s: %u x %u is more than a grid has blocks for",
                         call, task->conv.product.m, task->conv.product.n);
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
                     "%s: '%.64s' is no kernel that does this %s on %s:%d; cen_%s_list names them",
                     call, task->kernel, call, device->backend->name, device->ordinal, call);
}

void ceni_product_on_host(const ceni_product_task *task) {
    static const uint32_t one[3] = {1, 1, 1}; /* twins do all of it, whatever the launch */
    ceni_conv_args conv = task->conv;
    ceni_codec_job weight = task->weight;
    void *of_conv[] = {&conv}, *of_product[] = {&conv.product, &weight};
    if (task->is_conv) {
        ceni_twin_conv(one, one, 0, of_conv);
    } else if (task->is_coded) {
        ceni_twin_coded(one, one, 0, of_product);
    } else {
        ceni_twin_product(one, one, 0, of_product);
    }
}
