/* The table of commands, and dispatch. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cenote/cenote.h"

const cli_command cli_commands[] = {
    {"explain", "[FILE...] [--cap SIZE] [--device-total SIZE] [--json]",
     "why memory ran out, or whether it will", cmd_explain},
    {"replay", "FILE [--cap SIZE] [--curve] [--json]",
     "what the pool would have needed for a recorded run", cmd_replay},
    {"convert", "IN -o OUT [--to torch|trace|chrome]", "a recording in another format",
     cmd_convert},
    {"run",
     "[--leaks] [--error-exitcode N] [--watch] [--ledger] [--limit SIZE] [--pool] [--trace FILE] "
     "[--torch] [--no-stacks] [--json FILE] -- COMMAND",
     "runs a program and says what device memory it holds", cmd_run},
    {"holders", "[--device N] [--socket PATH] [--json]", "who holds the memory of each GPU",
     cmd_holders},
    {"revoke", "[--withdraw] [--socket PATH] NAME[@VERSION]|#ID...",
     "takes back what processes share", cmd_revoke},
    {"serve", "[--socket PATH] [--mode MODE] [--quota SIZE] [--quota-user NAME=SIZE]",
     "the broker through which processes share device memory", cmd_serve},
    {"probe", "[--json | --csv] [--svg FILE] [--dir FOLDER] [--no-keep] [--quick]",
     "this machine's levels of memory, measured", cmd_probe},
    {"profile",
     "[--csv FILE] [--print-command] [--kernel REGEX] [--top N] [--launch-limit N] [--ncu PATH] "
     "[--sample] [--machine FILE] [--json] [-o FILE] -- COMMAND",
     "what bounds a program's kernels, by a profiler's counters", cmd_profile},
    {"banks",
     "--rows N --cols N [--elem BYTES] [--access row|column|transposed|strided] [--stride N] "
     "[--pad N] [--swizzle[=BITS,BASE,SHIFT]] [--json]",
     "bank conflicts of an access to shared memory, on paper", cmd_banks},
    {"tile",
     "M N K [--dtype fp32|tf32|fp16|bf16|fp8|int8] [--tile BMxBNxBK] [--stages N] [--warps N] "
     "[--chain TEXT] "
     "[--arch sm_80|sm_90] [--multiprocessors N] [--l2 SIZE] [--machine FILE] [--device N] "
     "[--peak-flops F] [--bandwidth SIZE] [--json]",
     "where the operands of a tiled product live and what moves, on paper", cmd_tile},
    {"roofline",
     "--flops F --bytes [LEVEL=]SIZE [--dtype fp32|tf32|fp16|bf16|fp8|int8] [--machine FILE] "
     "[--device N] [--peak-flops F] "
     "[--bandwidth SIZE] [--latency NS] [--json]",
     "whether memory, arithmetic or latency bounds a piece of work", cmd_roofline},
    {"inspect", "FILE [--stats] [--json]", "what is in a tensor file, or in all files of a model",
     cmd_inspect},
    {"compare", "A B [--tolerance E] [--sqnr DB] [--top N] [--json]",
     "how far the tensors of one file are from those of another", cmd_compare},
    {"quantize",
     "IN -o OUT [--format int8|int4|fp8_e4m3|fp8_e5m2|fp16|bf16|2:4_fp16|2:4_bf16|2:4_int8|"
     "lossless_bf16|none] [--group 32|64|128] [--asymmetric] "
     "[--calibrate minmax|percentile|entropy|mse] [--budget LIMITS] [--include PATTERN] "
     "[--exclude PATTERN] [--top N] [--json]",
     "a tensor file in fewer bits, and what that costs each tensor", cmd_quantize},
    {"help", "[COMMAND | --commands]", "what the commands do", cmd_help},
    {0},
};

static const cli_command *find(const char *name) {
    for (const cli_command *c = cli_commands; c->name; c++) {
        if (!strcmp(c->name, name)) {
            return c;
        }
    }
    return NULL;
}

static void print_usage(FILE *out) {
    fprintf(out, "usage: cenote COMMAND [ARGUMENTS]\n\n");
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    }
    fprintf(out, "\ncenote COMMAND --help says more; cenote --version prints the version.\n");
}

int cmd_help(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stdout);
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--commands")) { /* for the shell's completion */
        for (const cli_command *c = cli_commands; c->name; c++) {
            printf("%s\t%s\t%s\n", c->name, c->args, c->summary);
        }
        return CLI_OK;
    }
    bool of_itself = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
    const cli_command *c = find(of_itself ? "help" : argv[1]);
    if (!c) {
        return cli_usage_error("help", "no command '%s'; 'cenote help' lists them", argv[1]);
    }
    if (c->run == cmd_help) {
        printf("usage: cenote %s %s\n\n%s\n", c->name, c->args, c->summary);
        return CLI_OK;
    }
    char name[] = "help", option[] = "--help";
    return c->run(2, (char *[]){name, option, NULL});
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("cenote %s\n", cen_version());
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_usage(stdout);
        return CLI_OK;
    }
    const cli_command *c = find(argv[1]);
    if (!c) {
        return cli_usage_error("", "no command '%s'; 'cenote help' lists them", argv[1]);
    }
    return c->run(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    int status = run(argc, argv);
    /* What was printed may be in a buffer still, and what could not be written is no success. */
    if (!status && (fflush(stdout) || ferror(stdout))) {
        const char *name = argc > 1 && find(argv[1]) ? argv[1] : "";
        status = cli_failed(name, "standard output: %s", strerror(errno));
    }
    return status;
}
