/* cenote banks: bank conflicts of a walk over a tile in shared memory. */
#include "cli/cmd.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/banks.h"

typedef struct arguments {
    cen_banks_tile tile;
    bool json, help, find_swizzle;
} arguments;

static const char usage[] =
    "usage: cenote banks --rows N --cols N [--elem BYTES]\n"
    "                    [--access row|column|transposed|strided] [--stride N]\n"
    "                    [--pad N] [--swizzle[=BITS,BASE,SHIFT]] [--json]\n"
    "\n"
    "Counts on paper the bank conflicts of a warp's accesses to a tile in shared memory, and "
    "names\n"
    "the smallest padding and a swizzle that remove them. No GPU is needed.\n"
    "\n"
    "  --rows N, --cols N  the tile's shape, in elements\n"
    "  --elem BYTES        what a lane accesses at once: 1, 2, 4 (if not given), 8 or 16\n"
    "  --access WALK       how warps walk over the tile:\n"
    "                        row         along the rows\n"
    "                        column      down the columns (if not given)\n"
    "                        transposed  stored along the rows, read down the columns\n"
    "                        strided     every N-th element (--stride N)\n"
    "  --pad N             elements left free after each row\n"
    "  --swizzle           columns exchanged within a row, by the swizzle that is found; or by\n"
    "                      column ^ ((row >> SHIFT & (2^BITS - 1)) << BASE)\n"
    "  --json              one JSON object; its keys are in docs/banks.md\n";

const char *const banks_walks[4] = {"row", "column", "transposed", "strided"};

static int parse_walk(const char *value, cen_walk *walk) {
    for (int i = 0; i < 4; i++) {
        if (!strcmp(value, banks_walks[i])) {
            *walk = (cen_walk)i;
            return CLI_OK;
        }
    }
    return cli_usage_error("banks", "--access is row, column, transposed or strided%s%s%s",
                           *value ? ", not '" : "", value, *value ? "'" : "");
}

static int parse_swizzle(const char *value, cen_swizzle *s) {
    uint32_t *const parts[] = {&s->bits, &s->base, &s->shift};
    const char *at = value;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        unsigned long part = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        if (!end || part > UINT32_MAX || *end != (i < 2 ? ',' : '\0')) {
            return cli_usage_error("banks", "--swizzle is BITS,BASE,SHIFT, such as 5,0,0, not '%s'",
                                   value);
        }
        *parts[i] = (uint32_t)part;
        at = end + 1;
    }
    return CLI_OK;
}

/* The options that are a number each; true if argv[*i] is one. */
static bool parse_number(int argc, char **argv, int *i, cen_banks_tile *tile, int *status) {
    const struct {
        const char *name;
        uint32_t *to;
        uint64_t min, max;
    } numbers[] = {
        {"--rows", &tile->rows, 1, UINT32_MAX},     {"--cols", &tile->cols, 1, UINT32_MAX},
        {"--elem", &tile->elem_bytes, 1, 16},       {"--pad", &tile->pad, 0, UINT32_MAX},
        {"--stride", &tile->stride, 1, UINT32_MAX},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const char *value = cli_option_value(numbers[n].name, argc, argv, i);
        uint64_t number = 0;
        if (value) {
            *status = cli_whole_option("banks", numbers[n].name, value, numbers[n].min,
                                       numbers[n].max, &number);
            *numbers[n].to = (uint32_t)number;
            return true;
        }
    }
    return false;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    for (int i = 1; i < argc && !status; i++) {
        const char *value;
        if (cli_common_option(argv[i], &args->help, &args->json)) {
            continue;
        }
        if (!strcmp(argv[i], "--swizzle")) {
            args->find_swizzle = true;
        } else if (!strncmp(argv[i], "--swizzle=", strlen("--swizzle="))) {
            status = parse_swizzle(argv[i] + strlen("--swizzle="), &args->tile.swizzle);
        } else if (parse_number(argc, argv, &i, &args->tile, &status)) {
            continue;
        } else if ((value = cli_option_value("--access", argc, argv, &i))) {
            status = parse_walk(value, &args->tile.walk);
        } else {
            status = cli_stray_word("banks", argv[i]);
        }
    }
    return status;
}

static int check(const arguments *args) {
    if (!args->tile.rows || !args->tile.cols) {
        return cli_usage_error("banks", "%s is missing; --help says more",
                               args->tile.rows ? "--cols" : "--rows");
    }
    if (args->tile.walk == CEN_WALK_STRIDED && !args->tile.stride) {
        return cli_usage_error("banks", "--access strided needs --stride N");
    }
    if (args->tile.walk != CEN_WALK_STRIDED && args->tile.stride) {
        return cli_usage_error("banks", "--stride is for --access strided");
    }
    return CLI_OK;
}

/* The tile is judged with the swizzle that was found, if one was asked for. */
static int judge(const arguments *args, banks_report *report) {
    cen_banks_tile *tile = &report->tile;
    *tile = args->tile;
    bool failed = args->find_swizzle && cen_banks_find_remedy(tile, &report->remedy);
    if (!failed && args->find_swizzle) {
        if (!report->remedy.has_swizzle) {
            return cli_usage_error("banks", "--swizzle: none removes the conflicts of this access");
        }
        tile->swizzle = report->remedy.swizzle;
    }
    failed = failed || cen_banks_judge(tile, &report->result) ||
             (report->result.degree > 1 && cen_banks_find_remedy(tile, &report->remedy));
    return failed ? cli_usage_error("banks", "%s", cli_reason(cen_log_last_error())) : CLI_OK;
}

int cmd_banks(int argc, char **argv) {
    arguments args = {.tile = {.size = sizeof args.tile, .walk = CEN_WALK_COLUMN, .elem_bytes = 4}};
    banks_report report = {.remedy = {0}};
    int status = parse(argc, argv, &args);
    if (!status && args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    if (!status) {
        status = check(&args);
    }
    if (!status) {
        status = judge(&args, &report);
    }
    if (status) {
        return status;
    }
    if (args.json) {
        return banks_print_json(&report);
    }
    banks_print(&report);
    return CLI_OK;
}
