/* cenote tile: a tiled product, or a chain of operations, on paper. */
#include "cli/cmd.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/machine.h"
#include "cli/tile.h"

typedef struct arguments {
    cen_tile_request request;
    cli_machine machine;
    int shape; /* how many of M, N and K were given */
    bool json, plain, help;
} arguments;

static const char usage[] =
    "usage: cenote tile M N K [--dtype TYPE] [--tile BMxBNxBK] [--stages N] [--warps N]\n"
    "                   [--chain TEXT] [--arch sm_80|sm_90] [--multiprocessors N] [--l2 SIZE]\n"
    "                   [--machine FILE] [--device N] [--peak-flops F] [--bandwidth SIZE] "
    "[--json]\n"
    "\n"
    "Plans on paper the product of [M, K] by [K, N], or a chain of operations on [M, K], in "
    "tiles:\n"
    "where each operand and intermediate lives, fused and unfused, the bytes moved at each level,\n"
    "what a block takes and how many fit, and the bound to expect. No GPU is needed.\n"
    "\n"
    "  --dtype TYPE         fp32, tf32, fp16, bf16 (if not given), fp8 or int8\n"
    "  --tile BMxBNxBK      the tile of a block; chosen if not given\n"
    "  --stages N           tiles of operands in flight\n"
    "  --warps N            that multiply, in a block\n"
    "  --chain TEXT         operations by commas: linear [columns, N if not given], bias, scale,\n"
    "                       residual, relu, gelu; such as 'linear 4096, bias, gelu, linear 1024'\n"
    "  --arch sm_80|sm_90   whose limits count; sm_90 if not given\n"
    "  --multiprocessors N  how many there are\n"
    "  --l2 SIZE            of the L2 cache\n"
    "  --machine FILE       the results of a probe, if not this machine's own\n"
    "  --device N           the device in them, from 0\n"
    "  --peak-flops F       operations a second, such as 989T, instead of a measured rate\n"
    "  --bandwidth SIZE     bytes a second of the main memory, such as 3.9TB, instead\n"
    "  --json               one JSON object; its keys are in docs/tile.md\n";

static int parse_tile(const char *value, cen_tile_request *request) {
    uint32_t *const parts[] = {&request->bm, &request->bn, &request->bk};
    const char *at = value;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        unsigned long part = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        if (!end || !part || part > UINT32_MAX || *end != (i < 2 ? 'x' : '\0')) {
            return cli_usage_error("tile", "--tile is BMxBNxBK, such as 128x128x32%s%s%s",
                                   *value ? ", not '" : "", value, *value ? "'" : "");
        }
        *parts[i] = (uint32_t)part;
        at = end + 1;
    }
    return CLI_OK;
}

static int parse_arch(const char *value, uint32_t *sm) {
    if (strcmp(value, "sm_80") && strcmp(value, "sm_90")) {
        return cli_usage_error("tile", "--arch is sm_80 or sm_90%s%s%s", *value ? ", not '" : "",
                               value, *value ? "'" : "");
    }
    *sm = value[3] == '8' ? 80 : 90;
    return CLI_OK;
}

/* One of M, N and K. */
static int parse_shape(const char *word, arguments *args) {
    static const char *const names[] = {"M", "N", "K"};
    uint64_t *const shape[] = {&args->request.m, &args->request.n, &args->request.k};
    if (args->shape == 3) {
        return cli_stray_word("tile", word);
    }
    int i = args->shape++;
    return cli_whole_option("tile", names[i], word, 1, INT32_MAX, shape[i]);
}

/* The options that are a whole number each; true if argv[*i] is one. */
static bool parse_number(int argc, char **argv, int *i, cen_tile_request *r, int *status) {
    const struct {
        const char *name;
        uint32_t *to;
        uint64_t max;
    } numbers[] = {
        {"--stages", &r->stages, 64},
        {"--warps", &r->warps, 32},
        {"--multiprocessors", &r->multiprocessors, 4096},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const char *value = cli_option_value(numbers[n].name, argc, argv, i);
        uint64_t number = 0;
        if (value) {
            *status = cli_whole_option("tile", numbers[n].name, value, 1, numbers[n].max, &number);
            *numbers[n].to = (uint32_t)number;
            return true;
        }
    }
    return false;
}

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    cen_tile_request *r = &args->request;
    const char *value;
    int status = CLI_OK;
    if (cli_end_of_options(argv[*i], &args->plain)) {
        return CLI_OK;
    }
    if (cli_is_operand(argv[*i], args->plain) || isdigit((unsigned char)argv[*i][1])) {
        return parse_shape(argv[*i], args);
    }
    if (cli_common_option(argv[*i], &args->help, &args->json)) {
        return CLI_OK;
    }
    if (cli_machine_option("tile", argc, argv, i, &args->machine, &status) ||
        cli_type_option("tile", argc, argv, i, &r->type, &status) ||
        parse_number(argc, argv, i, r, &status)) {
        return status;
    } else if ((value = cli_option_value("--tile", argc, argv, i))) {
        status = parse_tile(value, r);
    } else if ((value = cli_option_value("--chain", argc, argv, i))) {
        r->chain = value;
        if (!*value) {
            status = cli_usage_error("tile", "--chain needs operations, such as 'linear, bias'");
        }
    } else if ((value = cli_option_value("--arch", argc, argv, i))) {
        status = parse_arch(value, &r->sm);
    } else if ((value = cli_option_value("--l2", argc, argv, i))) {
        status = cli_size_option("tile", "--l2", value, &r->l2_bytes);
    } else {
        status = cli_stray_word("tile", argv[*i]);
    }
    return status;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, args);
    }
    if (!status && !args->help && args->shape < 3) {
        status = cli_usage_error("tile", "M, N and K are needed; --help says more");
    }
    return status;
}

/* The device whose results count; NULL: none. This machine's own may be its processor's alone,
 * whose caches and memory are no GPU's: they count only when they are asked for. */
static const cen_probe_device *planned_for(const cli_machine *machine) {
    const cen_probe_device *device = machine->device;
    bool asked = machine->file || machine->has_number;
    return device && (asked || device->multiprocessors) ? device : NULL;
}

/* Without ceilings the map is made all the same, but for times. */
static int plan(arguments *args) {
    cen_tile_request *r = &args->request;
    cen_tile_map *map = NULL;
    bool complete = args->machine.peak_flops > 0 && args->machine.bandwidth > 0;
    int status = cli_machine_open("tile", !complete, &args->machine);
    if (status) {
        return status;
    }
    r->device = planned_for(&args->machine);
    r->peak_flops = args->machine.peak_flops;
    r->bandwidth = args->machine.bandwidth;
    cen_status made = cen_tile_make(r, &map);
    if (made == CEN_ERR_HOST_MEMORY) {
        return cli_failed("tile", "%s", cen_status_text(made));
    }
    if (made) {
        return cli_usage_error("tile", "%s", cli_reason(cen_log_last_error()));
    }
    if (args->json) {
        status = tile_print_json(r, map);
    } else {
        tile_print(r, map);
    }
    cen_tile_free(map);
    return status;
}

int cmd_tile(int argc, char **argv) {
    arguments args = {.request = {.size = sizeof args.request, .type = CEN_BF16}};
    int status = parse(argc, argv, &args);
    if (!status && args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    if (!status) {
        status = plan(&args);
    }
    cli_machine_close(&args.machine);
    return status;
}
