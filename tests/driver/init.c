/* The driver's beginning, and how every entry begins. A forked child of an initialised process has
 * no driver any more, as on CUDA: every call of its gives CUDA_ERROR_NOT_INITIALIZED.
 *
 * CENOTE_TEST_DRIVER_FAIL="symbol=code,..." makes entries fail, by the exported name. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/state.h"
#include "tests/driver/td.h"

pthread_mutex_t td_lock = PTHREAD_MUTEX_INITIALIZER;
td_card td_cards[TD_CARDS_MAX];
int td_card_count;

static _Atomic int owner; /* the process that initialised; 0: none */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

static cu_result injected(const char *symbol) {
    const char *list = getenv("CENOTE_TEST_DRIVER_FAIL");
    size_t length = strlen(symbol);
    while (list && *list) {
        if (!strncmp(list, symbol, length) && list[length] == '=') {
            return (cu_result)strtoul(list + length + 1, NULL, 10);
        }
        list = strchr(list, ',');
        list += list != NULL;
    }
    return CU_SUCCESS;
}

cu_result td_enter(const char *symbol) {
    TD_TRY(injected(symbol));
    return atomic_load(&owner) == getpid() ? CU_SUCCESS : CU_ERROR_NOT_INITIALIZED;
}

cu_result td_enter_context(const char *symbol, td_context **context) {
    TD_TRY(td_enter(symbol));
    return td_current(context);
}

cu_result td_enter_device(const char *symbol, cu_device device, td_card **card) {
    TD_TRY(td_enter(symbol));
    if (device < 0 || device >= td_card_count) {
        return CU_ERROR_INVALID_DEVICE;
    }
    *card = &td_cards[device];
    return CU_SUCCESS;
}

uint64_t td_mib_setting(const char *name, uint64_t fallback_mib) {
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    return (text && end != text && !*end ? value : fallback_mib) << 20;
}

cu_result td_result(cen_status status) {
    switch (status) {
    case CEN_OK:
        return CU_SUCCESS;
    case CEN_ERR_HOST_MEMORY:
    case CEN_ERR_DEVICE_MEMORY:
    case CEN_ERR_LIMIT:
        return CU_ERROR_OUT_OF_MEMORY;
    case CEN_ERR_NOT_READY:
        return CU_ERROR_NOT_READY;
    case CEN_ERR_UNSUPPORTED:
        return CU_ERROR_NOT_SUPPORTED;
    case CEN_ERR_CAPTURE:
        return CU_ERROR_CAPTURE_UNSUPPORTED;
    case CEN_ERR_FAULT:
    case CEN_ERR_DEVICE_LOST:
        return CU_ERROR_ILLEGAL_ADDRESS;
    case CEN_ERR_NOT_FOUND:
        return CU_ERROR_NOT_FOUND;
    case CEN_ERR_NO_DEVICE:
        return CU_ERROR_NO_DEVICE;
    case CEN_ERR_INVALID:
    case CEN_ERR_BUSY:
        return CU_ERROR_INVALID_VALUE;
    default:
        return CU_ERROR_UNKNOWN;
    }
}

static cu_result open_cards(void) {
    int count = 0;
    cen_status status = ceni_backend_host.count(&count);
    for (int i = 0; !status && i < count && i < TD_CARDS_MAX; i++) {
        td_card *card = &td_cards[i];
        status = ceni_backend_host.open(i, NULL, &card->device);
        if (!status) {
            card->device->backend = &ceni_backend_host;
            card->device->pid = getpid();
            card->ordinal = i;
            card->primary = (td_context){.card = card, .primary = true, .small = {.card = card}};
            card->primary.next = td_contexts;
            td_contexts = &card->primary;
            td_card_count++;
        }
    }
    return td_result(status);
}

cu_result cuInit(unsigned flags) {
    TD_TRY(injected(__func__));
    if (flags) {
        return CU_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&init_lock);
    cu_result result = CU_SUCCESS;
    if (!atomic_load(&owner)) {
        result = open_cards();
        if (result == CU_SUCCESS) {
            atomic_store(&owner, (int)getpid());
        }
    } else if (atomic_load(&owner) != getpid()) {
        result = CU_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

cu_result cuDriverGetVersion(int *version) {
    TD_TRY(injected(__func__));
    TD_NEED(version);
    *version = 13000;
    return CU_SUCCESS;
}

static const struct {
    cu_result code;
    const char *name, *text;
} errors[] = {
#define NAME(ours, name, value) {value, #name, "the test driver says " #name},
    CU_ERROR_MAP(NAME)
#undef NAME
};

static cu_result describe(cu_result error, const char **text, bool name) {
    TD_NEED(text);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code == error) {
            *text = name ? errors[i].name : errors[i].text;
            return CU_SUCCESS;
        }
    }
    *text = NULL;
    return CU_ERROR_INVALID_VALUE;
}

cu_result cuGetErrorName(cu_result error, const char **text) {
    return describe(error, text, true);
}

cu_result cuGetErrorString(cu_result error, const char **text) {
    return describe(error, text, false);
}

__attribute__((destructor)) static void at_exit(void) {
    if (atomic_load(&owner) == getpid()) {
        td_state_remove();
    }
}
