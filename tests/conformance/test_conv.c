/* Convolutions against double precision, by every kernel: filters, strides, padding, dilation,
 * channels and alignments, with what is done to the results. */
#include "tests/conformance/product_suite.h"

static const fixture *fixture_of(void **state) {
    return *state;
}

/* A convolution, and what its operands hold. Tensors are matrices of the last side's length. */
typedef struct setting {
    cen_conv conv;
    uint32_t out_height, out_width;
    uint64_t offset;
    bool bias, residual;
    cen_dtype bias_dtype;
} setting;

typedef struct tensors {
    twofold input, weight, output, residual, bias;
} tensors;

static tensors tensors_make(arena *a, setting *s) {
    cen_conv *c = &s->conv;
    tensors t;
    OK(cen_conv_output(c, &s->out_height, &s->out_width));
    uint64_t pixels = (uint64_t)c->images * s->out_height * s->out_width;
    a->used = 0;
    t.input = twofold_make(a, c->dtype, (uint64_t)c->images * c->height * c->width, c->channels, 0,
                           s->offset);
    t.weight = twofold_make(a, c->dtype, (uint64_t)c->filters * c->filter_height * c->filter_width,
                            c->channels, 0, s->offset);
    t.output = twofold_make(a, c->dtype, pixels, c->filters, 0, s->offset);
    t.residual = twofold_make(a, c->dtype, pixels, c->filters, 0, s->offset);
    t.bias = twofold_make(a, s->bias_dtype, 1, c->filters, 0, s->offset);
    fill_random(a, &t.input);
    fill_random(a, &t.weight);
    fill_random(a, &t.residual);
    fill_random(a, &t.bias);
    c->input = t.input.matrix.data;
    c->weight = t.weight.matrix.data;
    c->output = t.output.matrix.data;
    c->residual = s->residual ? t.residual.matrix.data : 0;
    c->bias = s->bias ? t.bias.matrix.data : 0;
    c->bias_dtype = s->bias_dtype;
    return t;
}

static void tensors_free(tensors *t) {
    twofold *all[5] = {&t->input, &t->weight, &t->output, &t->residual, &t->bias};
    for (size_t i = 0; i < 5; i++) {
        free(all[i]->host);
    }
}

static uint32_t or_one(uint32_t value) {
    return value ? value : 1;
}

/* What one tap of the filter adds at a place of the input, which may be outside. */
static double tap_of(const cen_conv *c, const tensors *t, uint64_t image, int64_t y, int64_t x,
                     uint64_t weight_row, double *sum) {
    double value = 0;
    if (y < 0 || x < 0 || y >= c->height || x >= c->width) {
        return 0;
    }
    uint64_t row = (image * c->height + (uint64_t)y) * c->width + (uint64_t)x;
    for (uint32_t i = 0; i < c->channels; i++) {
        double product = get(&t->input, row, i) * get(&t->weight, weight_row, i);
        value += product;
        *sum += fabs(product);
    }
    return value;
}

static double exact_conv(const setting *s, const tensors *t, uint64_t pixel, uint64_t filter,
                         double *sum) {
    const cen_conv *c = &s->conv;
    /* There is a pixel: neither is 0. */
    uint32_t height = or_one(s->out_height), width = or_one(s->out_width);
    uint64_t image = pixel / ((uint64_t)height * width);
    int64_t y = (int64_t)(pixel / width % height) * or_one(c->stride[0]);
    int64_t x = (int64_t)(pixel % width) * or_one(c->stride[1]);
    double value = s->bias ? get(&t->bias, 0, filter) : 0;
    double residual = s->residual ? get(&t->residual, pixel, filter) : 0;
    *sum = fabs(value) + fabs(residual);
    for (uint32_t i = 0; i < c->filter_height; i++) {
        for (uint32_t j = 0; j < c->filter_width; j++) {
            value += tap_of(c, t, image, y - c->padding[0] + (int64_t)i * or_one(c->dilation[0]),
                            x - c->padding[1] + (int64_t)j * or_one(c->dilation[1]),
                            (filter * c->filter_height + i) * c->filter_width + j, sum);
        }
    }
    return activated(value, c->activation) + residual;
}

static void describe(const setting *s, const char *kernel, char text[256]) {
    const cen_conv *c = &s->conv;
    snprintf(text, 256,
             "%s: %u images of %u x %u x %u, %u filters of %u x %u, stride %u %u, padding %u %u, "
             "dilation %u %u, offset %d%s%s act %d",
             kernel, c->images, c->height, c->width, c->channels, c->filters, c->filter_height,
             c->filter_width, c->stride[0], c->stride[1], c->padding[0], c->padding[1],
             c->dilation[0], c->dilation[1], (int)s->offset, s->bias ? " bias" : "",
             s->residual ? " residual" : "", (int)c->activation);
}

static void check_conv(const setting *s, const tensors *t, const char *text) {
    const cen_conv *c = &s->conv;
    uint64_t depth = (uint64_t)c->filter_height * c->filter_width * c->channels;
    uint64_t pixels = t->output.matrix.rows, work = pixels * c->filters * depth;
    uint64_t step = (work >> 23) + 1;
    for (uint64_t i = 0; i < pixels; i += 1 + below(2 * step - 1)) {
        for (uint64_t j = 0; j < c->filters; j++) {
            double sum, want = exact_conv(s, t, i, j, &sum), got = get(&t->output, i, j);
            double most = allowed(want, sum, depth, c->dtype, c->activation);
            if (!(fabs(got - want) <= most)) {
                fail_msg("%s: pixel %llu, filter %llu is %.9g, not %.9g; %.3g is allowed; seed "
                         "%llu",
                         text, (unsigned long long)i, (unsigned long long)j, got, want, most,
                         (unsigned long long)random_seed);
            }
        }
    }
}

static void try_conv(arena *a, setting *s) {
    cen_product_kernel kernels[8];
    size_t count = 0;
    tensors t = tensors_make(a, s);
    OK(cen_conv_list(a->device, &s->conv, kernels, 8, &count));
    assert_true(count <= 8);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char text[256];
        describe(s, kernels[i].name, text);
        memset(t.output.host, POISON, t.output.bytes);
        suite_write(a->device, t.output.base, t.output.host, t.output.bytes);
        s->conv.kernel = kernels[i].name;
        cen_status status = cen_conv_run(a->device, &s->conv, 0);
        skip_without_kernels(status);
        OK(status);
        read_back(a, &t.output, text);
        check_conv(s, &t, text);
    }
    tensors_free(&t);
}

static const cen_dtype types[] = {CEN_FP32, CEN_BF16, CEN_FP16};

static setting random_setting(int type) {
    setting s = {.conv = {.size = sizeof(cen_conv), .dtype = types[type]}};
    cen_conv *c = &s.conv;
    /* Channels that 16 bytes hold, and aligned: gathered in whole parts, or brought in boxes. */
    bool wide = below(2), boxes = wide && below(2);
    c->images = 1 + (uint32_t)below(3);
    c->channels = boxes  ? 64 * (1 + (uint32_t)below(2))
                  : wide ? 8 * (1 + (uint32_t)below(4))
                         : 1 + (uint32_t)below(20);
    c->filters = boxes && below(2) ? 8 * (1 + (uint32_t)below(3)) : 1 + (uint32_t)below(24);
    c->filter_height = 1 + (uint32_t)below(4);
    c->filter_width = 1 + (uint32_t)below(4);
    for (int i = 0; i < 2; i++) {
        c->stride[i] = (uint32_t)below(4);
        c->padding[i] = (uint32_t)below(4);
        c->dilation[i] = (uint32_t)below(3);
    }
    c->height = or_one(c->dilation[0]) * (c->filter_height - 1) + 1 + (uint32_t)below(9);
    c->width = or_one(c->dilation[1]) * (c->filter_width - 1) + 1 + (uint32_t)below(9);
    c->activation = (cen_activation)below(4);
    s.offset = wide ? 0 : below(8);
    s.bias = below(2);
    s.bias_dtype = below(2) ? CEN_FP32 : c->dtype;
    s.residual = below(2);
    return s;
}

static void small_ones_are_exact(void **state) {
    arena a = arena_make(fixture_of(state)->device);
    for (int round = 0; round < 50; round++) {
        for (int type = 0; type < 3; type++) {
            setting s = random_setting(type);
            try_conv(&a, &s);
        }
    }
}

/* Layers as networks have them: several tiles, channels that end within one, the first with three
 * channels. */
static void layers_are_exact(void **state) {
    static const cen_conv layers[] = {
        {.images = 2,
         .height = 30,
         .width = 29,
         .channels = 64,
         .filters = 72,
         .filter_height = 3,
         .filter_width = 3,
         .stride = {1, 1},
         .padding = {1, 1}},
        {.images = 2,
         .height = 56,
         .width = 56,
         .channels = 3,
         .filters = 64,
         .filter_height = 7,
         .filter_width = 7,
         .stride = {2, 2},
         .padding = {3, 3}},
        {.images = 1,
         .height = 28,
         .width = 28,
         .channels = 136,
         .filters = 260,
         .filter_height = 1,
         .filter_width = 1,
         .stride = {2, 2}},
        /* Several tiles for each block, with few filters. */
        {.images = 13,
         .height = 56,
         .width = 55,
         .channels = 64,
         .filters = 40,
         .filter_height = 3,
         .filter_width = 3,
         .padding = {1, 1}},
        /* Boxes over several images, whose walks differ along the two sides. */
        {.images = 5,
         .height = 15,
         .width = 11,
         .channels = 128,
         .filters = 136,
         .filter_height = 3,
         .filter_width = 2,
         .stride = {2, 1},
         .padding = {0, 3},
         .dilation = {2, 3}},
        {.images = 3,
         .height = 19,
         .width = 23,
         .channels = 192,
         .filters = 260,
         .filter_height = 2,
         .filter_width = 5,
         .stride = {1, 3},
         .padding = {2, 1}},
        {.images = 3,
         .height = 27,
         .width = 28,
         .channels = 64,
         .filters = 130,
         .filter_height = 1,
         .filter_width = 1,
         .stride = {2, 2}},
        /* Plain products, of which the second can come in boxes. */
        {.images = 3,
         .height = 21,
         .width = 20,
         .channels = 72,
         .filters = 130,
         .filter_height = 1,
         .filter_width = 1},
        {.images = 3,
         .height = 21,
         .width = 20,
         .channels = 128,
         .filters = 56,
         .filter_height = 1,
         .filter_width = 1},
    };
    if (!kernels_differ(*state)) {
        suite_skip("one twin serves all shapes here, and takes long for large ones");
    }
    arena a = arena_make(fixture_of(state)->device);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        for (int type = 0; type < 3; type++) {
            setting s = {.conv = layers[i], .bias = true, .residual = i % 2};
            s.bias_dtype = i % 3 ? CEN_FP32 : types[type];
            s.conv.size = sizeof(cen_conv);
            s.conv.dtype = types[type];
            s.conv.activation = CEN_ACTIVATION_RELU;
            try_conv(&a, &s);
        }
    }
}

static void outputs_have_the_size_of_the_formula(void **state) {
    cen_conv c = {.size = sizeof c,
                  .height = 224,
                  .width = 7,
                  .filter_height = 7,
                  .filter_width = 3,
                  .stride = {2, 3},
                  .padding = {3, 0},
                  .dilation = {1, 2}};
    uint32_t height = 0, width = 0;
    OK(cen_conv_output(&c, &height, &width));
    assert_int_equal(height, 112);
    assert_int_equal(width, 1);
    c.width = 4;
    FAILS(CEN_ERR_INVALID, cen_conv_output(&c, &height, &width));
    assert_logged("the filter spans 5 columns, of 4 with padding");
    c.filter_height = 0;
    FAILS(CEN_ERR_INVALID, cen_conv_output(&c, &height, &width));
    assert_logged("the filter has no rows");
    c.filter_height = 1;
    c.padding[0] = UINT32_MAX;
    FAILS(CEN_ERR_UNSUPPORTED, cen_conv_output(&c, &height, &width));
    assert_logged("less than 2^30");
}

typedef struct refusal {
    const char *text;
    cen_status status;
    void (*spoil)(cen_conv *c);
} refusal;

#define SPOIL(name, change)                                                                        \
    static void name(cen_conv *c) {                                                                \
        change;                                                                                    \
    }
SPOIL(no_size, c->size = 4)
SPOIL(bad_type, c->dtype = CEN_INT8)
SPOIL(no_input, c->input = 0)
SPOIL(odd_weight, c->weight += 1)
SPOIL(input_in_output, c->output = c->input + 4)
SPOIL(weight_in_output, c->output = c->weight)
SPOIL(residual_in_output, c->residual = c->output + 4)
SPOIL(bias_in_output, c->bias = c->output + 4; c->bias_dtype = CEN_FP32)
SPOIL(bias_type, c->bias = 4096; c->bias_dtype = CEN_FP16)
SPOIL(no_activation, c->activation = (cen_activation)4)
SPOIL(no_kernel, c->kernel = "cen_product_naive")
SPOIL(too_many, c->images = c->height = c->width = c->channels = 1u << 29)

static const refusal refusals[] = {
    {"conv: conv.size is 4; ", CEN_ERR_INVALID, no_size},
    {"conv: of int8", CEN_ERR_UNSUPPORTED, bad_type},
    {"conv: input has no memory", CEN_ERR_INVALID, no_input},
    {"conv: weight lies at", CEN_ERR_INVALID, odd_weight},
    {"conv: output overlaps input", CEN_ERR_INVALID, input_in_output},
    {"conv: output overlaps weight", CEN_ERR_INVALID, weight_in_output},
    {"conv: residual overlaps output", CEN_ERR_INVALID, residual_in_output},
    {"conv: output overlaps bias", CEN_ERR_INVALID, bias_in_output},
    {"conv: bias is of fp16", CEN_ERR_UNSUPPORTED, bias_type},
    {"conv: activation 4 is none", CEN_ERR_INVALID, no_activation},
    {"conv: 'cen_product_naive' is no kernel", CEN_ERR_NOT_FOUND, no_kernel},
    {"has no addresses", CEN_ERR_INVALID, too_many},
};

static void bad_ones_are_refused(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    setting s = {.conv = {.size = sizeof(cen_conv),
                          .dtype = CEN_FP32,
                          .images = 1,
                          .height = 5,
                          .width = 5,
                          .channels = 4,
                          .filters = 4,
                          .filter_height = 3,
                          .filter_width = 3},
                 .bias_dtype = CEN_FP32};
    tensors t = tensors_make(&a, &s);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        cen_conv c = s.conv;
        refusals[i].spoil(&c);
        suite_log_reset();
        cen_status status = cen_conv_run(d, &c, 0);
        if (status != refusals[i].status) {
            fail_msg("'%s': status %d", refusals[i].text, status);
        }
        assert_logged(refusals[i].text);
    }
    FAILS(CEN_ERR_INVALID, cen_conv_run(d, NULL, 0));
    assert_logged("conv is NULL");
    tensors_free(&t);
}

/* Without images or filters there is nothing to do; without channels sums are zero. */
static void empty_ones_do_what_there_is(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    setting s = {.conv = {.size = sizeof(cen_conv),
                          .dtype = CEN_BF16,
                          .images = 1,
                          .height = 3,
                          .width = 3,
                          .channels = 0,
                          .filters = 5,
                          .filter_height = 2,
                          .filter_width = 2},
                 .bias = true,
                 .bias_dtype = CEN_FP32};
    try_conv(&a, &s);
    cen_conv none = s.conv;
    none.images = 0;
    none.kernel = NULL;
    OK(cen_conv_run(d, &none, 0));
}

/* A device that copies boxes, on any backend: the fixture's own, which is told so. */
typedef struct told {
    cen_device *device;
    ceni_backend backend;
    const ceni_backend *own;
    uint32_t capability, multiprocessors;
} told;

static int maps_made, pixel_maps_made;
static cen_status pixel_maps_status;
static ceni_pixels pixels_seen;

static cen_status make_no_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map) {
    maps_made++;
    memset(map, 0, sizeof *map);
    return CEN_OK;
}

static cen_status make_no_pixel_map(cen_device *device, const ceni_pixels *pixels,
                                    ceni_tensor_map *map) {
    pixel_maps_made++;
    pixels_seen = *pixels;
    memset(map, 0, sizeof *map);
    return pixel_maps_status;
}

static void tell(told *t, cen_device *d, bool pixels) {
    *t = (told){d, *d->backend, d->backend, d->compute_capability, d->multiprocessors};
    t->backend.tensor_map = make_no_map;
    t->backend.pixel_map = pixels ? make_no_pixel_map : NULL;
    d->backend = &t->backend;
    d->compute_capability = 90;
    d->multiprocessors = 132;
    maps_made = pixel_maps_made = 0;
    pixel_maps_status = CEN_OK;
}

static void untell(const told *t) {
    t->device->backend = t->own;
    t->device->compute_capability = t->capability;
    t->device->multiprocessors = t->multiprocessors;
}

static cen_conv layer(uint32_t images, uint32_t side, uint32_t channels, uint32_t filters) {
    return (cen_conv){.size = sizeof(cen_conv),
                      .dtype = CEN_BF16,
                      .input = UINT64_C(1) << 40,
                      .weight = UINT64_C(2) << 40,
                      .output = UINT64_C(3) << 40,
                      .images = images,
                      .height = side,
                      .width = side,
                      .channels = channels,
                      .filters = filters,
                      .filter_height = 3,
                      .filter_width = 3,
                      .padding = {1, 1}};
}

/* The first kernel of `want` must be that; checks what all need. */
static void first_is(cen_device *d, cen_conv c, size_t want, const char *name) {
    cen_product_kernel kernels[8];
    size_t count = 0;
    OK(cen_conv_list(d, &c, kernels, 8, &count));
    assert_int_equal(count, want);
    for (size_t i = 0; i < count; i++) {
        assert_true(kernels[i].shared_bytes <= 227 * 1024);
        assert_true(kernels[i].threads != 384 || kernels[i].blocks <= d->multiprocessors);
    }
    assert_string_equal(kernels[0].name, name);
}

/* With tensor maps, channels that 16 bytes hold go to wgmma, by the tile that wastes least. */
static void filters_choose_the_tile(void **state) {
    cen_device *d = fixture_of(state)->device;
    told t;
    tell(&t, d, false);
    first_is(d, layer(16, 56, 64, 64), 4, "cen_conv_wgmma64_bf16");
    first_is(d, layer(16, 56, 64, 128), 4, "cen_conv_wgmma128_bf16");
    first_is(d, layer(16, 56, 64, 256), 4, "cen_conv_wgmma256_bf16");
    first_is(d, layer(16, 56, 12, 256), 1, "cen_conv_mma_bf16");
    untell(&t);
}

/* With maps of pixels, multiples of 64 channels come in boxes, unless a walk has no map. */
static void boxes_are_brought_where_they_can_be(void **state) {
    cen_device *d = fixture_of(state)->device;
    told t;
    tell(&t, d, true);
    first_is(d, layer(64, 56, 64, 64), 8, "cen_conv_boxes64_bf16");
    first_is(d, layer(64, 56, 128, 64), 7, "cen_conv_boxes64_bf16"); /* too many to be held */
    first_is(d, layer(64, 28, 128, 128), 7, "cen_conv_boxes128_bf16");
    first_is(d, layer(64, 14, 256, 256), 7, "cen_conv_boxes128_bf16");
    first_is(d, layer(64, 7, 512, 512), 7, "cen_conv_boxes128_bf16");
    first_is(d, layer(64, 56, 72, 64), 4, "cen_conv_wgmma64_bf16");
    cen_conv c = layer(64, 56, 64, 64);
    c.stride[1] = 8;
    first_is(d, c, 8, "cen_conv_boxes64_bf16");
    c.stride[1] = 9;
    first_is(d, c, 4, "cen_conv_wgmma64_bf16");
    c = layer(64, 300, 64, 64);
    c.padding[0] = 128;
    first_is(d, c, 8, "cen_conv_boxes64_bf16");
    c.padding[0] = 129;
    first_is(d, c, 4, "cen_conv_wgmma64_bf16");
    c = layer(64, 300, 64, 64);
    c.padding[1] = 0;
    c.dilation[1] = 64;
    first_is(d, c, 8, "cen_conv_boxes64_bf16");
    c.dilation[1] = 65; /* the last pixel's window begins 130 before the last */
    first_is(d, c, 4, "cen_conv_wgmma64_bf16");
    untell(&t);
}

/* One tap at each pixel needs no gathering; boxes of pixels are then such of a matrix. */
static void plain_ones_are_products(void **state) {
    cen_device *d = fixture_of(state)->device;
    told t;
    tell(&t, d, true);
    cen_conv c = layer(64, 56, 64, 256);
    c.filter_height = c.filter_width = 1;
    first_is(d, c, 7, "cen_conv_boxes128_bf16");
    c.padding[0] = c.padding[1] = 0;
    first_is(d, c, 7, "cen_conv_boxes128_bf16");
    c.filters = 64;
    first_is(d, c, 8, "cen_conv_boxes64_bf16");
    c.channels = 72;
    first_is(d, c, 4, "cen_product_wgmma128_bf16_nt");
    c.channels = 12;
    first_is(d, c, 1, "cen_product_mma_bf16_nt");
    c.dtype = CEN_FP32;
    first_is(d, c, 5, "cen_product_fp32_64_nt");
    c.stride[0] = 2;
    first_is(d, c, 2, "cen_conv_fp32_64");
    untell(&t);
}

/* The map of a walk; where the driver has none, the next kernel needs one of the filters alone. */
static void maps_describe_the_walk(void **state) {
    cen_device *d = fixture_of(state)->device;
    cen_conv c = layer(2, 20, 64, 64);
    told t;
    c.filter_width = 5;
    c.stride[0] = 2;
    c.padding[1] = 3;
    c.dilation[1] = 4;
    tell(&t, d, true);
    ceni_dev_fault(d, CENI_OP_launch, 1, false); /* maps are made, nothing is launched */
    cen_status boxed = cen_conv_run(d, &c, 0);
    int maps = maps_made, pixel_maps = pixel_maps_made;
    pixel_maps_status = CEN_ERR_UNSUPPORTED;
    suite_log_reset();
    ceni_dev_fault(d, CENI_OP_launch, 1, false);
    cen_status gathered = cen_conv_run(d, &c, 0);
    untell(&t);
    assert_int_equal(boxed, CEN_ERR_DEVICE);
    assert_int_equal(maps, 2); /* of the filters and the output */
    assert_int_equal(pixel_maps, 1);
    const ceni_pixels want = {.data = c.input,
                              .images = 2,
                              .height = 20,
                              .width = 20,
                              .channels = 64,
                              .low = {-3, -1},
                              .high = {3 - 16, 1 - 2},
                              .steps = {1, 2},
                              .pixels = 128,
                              .dtype = CEN_BF16};
    assert_memory_equal(&pixels_seen, &want, sizeof want);
    assert_int_equal(gathered, CEN_ERR_DEVICE);
    assert_int_equal(maps_made, 2 + 1);
    assert_int_equal(pixel_maps_made, 1 + 3);
    assert_int_equal(suite_log_errors, 1); /* of the launch */
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(small_ones_are_exact),
    SUITE_TEST(layers_are_exact),
    SUITE_TEST(bad_ones_are_refused),
    SUITE_TEST(outputs_have_the_size_of_the_formula),
    SUITE_TEST(empty_ones_do_what_there_is),
    SUITE_TEST(filters_choose_the_tile),
    SUITE_TEST(boxes_are_brought_where_they_can_be),
    SUITE_TEST(plain_ones_are_products),
    SUITE_TEST(maps_describe_the_walk),
};

int main(void) {
    random_begin();
    return suite_run(tests, sizeof tests / sizeof *tests);
}
