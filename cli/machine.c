#include "cli/machine.h"

#include <stddef.h>

#include "cli/cmd.h"

enum { MAX_DEVICE = 4095 };

bool cli_machine_option(const char *command, int argc, char **argv, int *i, cli_machine *machine,
                        int *status) {
    const char *value;
    if ((value = cli_option_value("--machine", argc, argv, i))) {
        machine->file = value;
        if (!*value) {
            *status = cli_usage_error(command, "--machine needs a file, as 'cenote probe' writes");
        }
    } else if ((value = cli_option_value("--device", argc, argv, i))) {
        machine->has_number = true;
        *status = cli_whole_option(command, "--device", value, 0, MAX_DEVICE, &machine->number);
    } else if ((value = cli_option_value("--peak-flops", argc, argv, i))) {
        *status = cli_amount_option(command, "--peak-flops", value, "operations a second", "989T",
                                    &machine->peak_flops);
        if (!*status && machine->peak_flops <= 0) {
            *status = cli_usage_error(command, "--peak-flops is 0; a number over 0 is expected");
        }
    } else if ((value = cli_option_value("--bandwidth", argc, argv, i))) {
        uint64_t bytes = 0;
        *status = cli_size_option(command, "--bandwidth", value, &bytes);
        machine->bandwidth = (double)bytes;
    } else {
        return false;
    }
    return true;
}

/* Whether arithmetic is measured and planned in it. */
static bool is_multiplied(cen_dtype type) {
    return type == CEN_FP32 || type == CEN_TF32 || type == CEN_FP16 || type == CEN_BF16 ||
           type == CEN_FP8_E4M3 || type == CEN_FP8_E5M2 || type == CEN_INT8;
}

bool cli_type_option(const char *command, int argc, char **argv, int *i, cen_dtype *type,
                     int *status) {
    const char *value = cli_option_value("--dtype", argc, argv, i);
    if (value && (cen_dtype_find(value, type) || !is_multiplied(*type))) {
        *status = cli_usage_error(
            command, "--dtype: '%s' is none of fp32, tf32, fp16, bf16, fp8 and int8", value);
    }
    return value != NULL;
}

/* The library's reason for a file that cannot be read. */
static int failed(const char *command) {
    return cli_failed(command, "%s", cli_reason(cen_log_last_error()));
}

int cli_machine_open(const char *command, bool wanted, cli_machine *machine) {
    cen_status status = CEN_OK;
    if (machine->file) {
        status = cen_probe_load(machine->file, &machine->probe);
    } else if (wanted || machine->has_number) {
        status = cen_probe_load(NULL, &machine->probe);
        if (status == CEN_ERR_NOT_FOUND && !machine->has_number) {
            return CLI_OK; /* it was never measured */
        }
    } else {
        return CLI_OK;
    }
    if (status) {
        return failed(command);
    }
    machine->device = cen_probe_get_device(machine->probe, (size_t)machine->number);
    if (!machine->device) {
        size_t count = cen_probe_device_count(machine->probe);
        return cli_failed(command, "the results have %zu device%s, from 0 on; no number %u", count,
                          count == 1 ? "" : "s", (unsigned)machine->number);
    }
    return CLI_OK;
}

void cli_machine_close(cli_machine *machine) {
    cen_probe_free(machine->probe);
    machine->probe = NULL;
    machine->device = NULL;
}
