/* cenote roofline: work against a machine's ceilings. */
#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>

#include "cli/machine.h"
#include "cli/roofline.h"

typedef struct arguments {
    cen_work work;
    cen_traffic traffic[CEN_ROOFLINE_LEVELS];
    char levels[CEN_ROOFLINE_LEVELS][32];
    cli_machine machine;
    double latency_seconds;
    bool has_flops, json, help;
} arguments;

static const char usage[] =
    "usage: cenote roofline --flops F --bytes [LEVEL=]SIZE [--dtype TYPE]\n"
    "                       [--machine FILE] [--device N]\n"
    "                       [--peak-flops F] [--bandwidth SIZE] [--latency NS] [--json]\n"
    "\n"
    "Says what bounds work of F operations that moves SIZE bytes, memory, arithmetic or latency,\n"
    "and how long it takes at the least, against ceilings that 'cenote probe' measured or that "
    "are\n"
    "given. No GPU is needed.\n"
    "\n"
    "  --flops F            operations, such as 137G; 0 for work that only moves bytes\n"
    "  --bytes [LEVEL=]SIZE bytes moved to and from the main memory, or another level, such as\n"
    "                       L2=4GB; once for each level\n"
    "  --dtype TYPE         whose rate counts: fp32 (if not given), tf32, fp16, bf16, fp8, int8\n"
    "  --machine FILE       the results of a probe, if not this machine's own\n"
    "  --device N           the device in them, from 0\n"
    "  --peak-flops F       operations a second, such as 989T, instead of a measured rate\n"
    "  --bandwidth SIZE     bytes a second of the main memory, such as 3.9TB, instead\n"
    "  --latency NS         of the main memory, in nanoseconds, instead\n"
    "  --json               one JSON object; its keys are in docs/roofline.md\n";

/* "SIZE", or "LEVEL=SIZE". */
static int parse_bytes(const char *value, arguments *args) {
    size_t n = args->work.traffic_count;
    const char *equals = strchr(value, '='), *size = equals ? equals + 1 : value;
    uint64_t bytes = 0;
    if (n == CEN_ROOFLINE_LEVELS) {
        return cli_usage_error("roofline", "--bytes is given for at most %d levels",
                               CEN_ROOFLINE_LEVELS);
    }
    if ((equals && (equals == value || equals - value >= 32)) || !cli_parse_size(size, &bytes) ||
        !bytes) {
        return cli_usage_error("roofline", "--bytes needs a size, such as 12.5GB or L2=4GB%s%s%s",
                               *value ? ", not '" : "", value, *value ? "'" : "");
    }
    if (equals) {
        memcpy(args->levels[n], value, (size_t)(equals - value));
    }
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(args->levels[i], args->levels[n])) {
            return cli_usage_error("roofline", "--bytes is given twice for %s",
                                   *args->levels[n] ? args->levels[n] : "the main memory");
        }
    }
    args->traffic[n] =
        (cen_traffic){.level = equals ? args->levels[n] : NULL, .bytes = (double)bytes};
    args->work.traffic_count++;
    return CLI_OK;
}

static int parse_latency(const char *value, double *seconds) {
    double ns = 0;
    int status = cli_amount_option("roofline", "--latency", value, "nanoseconds", "420", &ns);
    *seconds = ns * 1e-9;
    return status;
}

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    const char *value;
    int status = CLI_OK;
    if (cli_common_option(argv[*i], &args->help, &args->json)) {
        return CLI_OK;
    }
    if (cli_machine_option("roofline", argc, argv, i, &args->machine, &status) ||
        cli_type_option("roofline", argc, argv, i, &args->work.type, &status)) {
        return status;
    } else if ((value = cli_option_value("--flops", argc, argv, i))) {
        args->has_flops = true;
        status = cli_amount_option("roofline", "--flops", value, "operations", "137G",
                                   &args->work.flops);
    } else if ((value = cli_option_value("--bytes", argc, argv, i))) {
        status = parse_bytes(value, args);
    } else if ((value = cli_option_value("--latency", argc, argv, i))) {
        status = parse_latency(value, &args->latency_seconds);
    } else {
        status = cli_stray_word("roofline", argv[*i]);
    }
    return status;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, args);
    }
    if (!status && !args->help && (!args->has_flops || !args->work.traffic_count)) {
        status = cli_usage_error("roofline", "%s is missing; --help says more",
                                 args->has_flops ? "--bytes" : "--flops");
    }
    return status;
}

/* Options stand before what was measured. True: nothing is left to be measured. */
static bool apply_options(arguments *args) {
    bool complete = args->machine.peak_flops > 0 || args->work.flops <= 0;
    args->work.traffic = args->traffic;
    args->work.peak_flops = args->machine.peak_flops;
    for (size_t i = 0; i < args->work.traffic_count; i++) {
        cen_traffic *t = &args->traffic[i];
        if (!t->level) {
            t->bandwidth = args->machine.bandwidth;
            t->latency_seconds = args->latency_seconds;
        }
        complete = complete && t->bandwidth > 0;
    }
    return complete;
}

/* --bandwidth and --latency are the main memory's, by whatever name --bytes calls it. */
static int name_memory(arguments *args) {
    const cen_probe_level *memory = cen_probe_get_memory(args->machine.device);
    for (size_t i = 0; memory && i < args->work.traffic_count; i++) {
        cen_traffic *t = &args->traffic[i];
        if (!t->level || strcmp(t->level, memory->level)) {
            continue;
        }
        for (size_t j = 0; j < args->work.traffic_count; j++) {
            if (!args->traffic[j].level) {
                return cli_usage_error("roofline", "--bytes is given twice for %s", t->level);
            }
        }
        t->bandwidth = args->machine.bandwidth;
        t->latency_seconds = args->latency_seconds;
    }
    return CLI_OK;
}

/* What stands for the ceiling that is missing, the first one as the library looks for them. */
static const char *remedy(const cen_work *work) {
    if (work->flops > 0 && work->peak_flops <= 0 &&
        cen_probe_get_rate(work->device, cen_dtype_name(work->type)) <= 0) {
        return "give --peak-flops";
    }
    for (size_t i = 0; i < work->traffic_count; i++) {
        const cen_traffic *t = &work->traffic[i];
        const cen_probe_level *measured = t->level ? cen_probe_get_level(work->device, t->level)
                                                   : cen_probe_get_memory(work->device);
        if (t->bandwidth <= 0 && (!measured || measured->bandwidth_gbps <= 0)) {
            return t->level ? "leave out its --bytes" : "give --bandwidth";
        }
    }
    return "measure it";
}

static int judge(arguments *args) {
    cen_roofline_result result;
    bool complete = apply_options(args);
    int status = cli_machine_open("roofline", !complete, &args->machine);
    if (status) {
        return status;
    }
    if (!complete && !args->machine.device) {
        return cli_usage_error("roofline", "there are no ceilings: " CLI_MACHINE_MISSING);
    }
    args->work.device = args->machine.device;
    status = name_memory(args);
    if (status) {
        return status;
    }
    cen_status judged = cen_roofline_judge(&args->work, &result);
    if (judged == CEN_ERR_NOT_FOUND) {
        return cli_usage_error("roofline",
                               "%s; %s, or name results of 'cenote probe' that have it with "
                               "--machine FILE",
                               cli_reason(cen_log_last_error()), remedy(&args->work));
    }
    if (judged) {
        return cli_usage_error("roofline", "%s", cli_reason(cen_log_last_error()));
    }
    if (args->json) {
        return roofline_print_json(&args->work, &result);
    }
    roofline_print(&args->work, &result);
    return CLI_OK;
}

int cmd_roofline(int argc, char **argv) {
    arguments args = {.work = {.size = sizeof args.work, .type = CEN_FP32}};
    int status = parse(argc, argv, &args);
    if (!status && args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    if (!status) {
        status = judge(&args);
    }
    cli_machine_close(&args.machine);
    return status;
}
