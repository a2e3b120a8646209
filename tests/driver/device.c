/* Devices: the cards' properties in CUDA's words. */
#include <stdio.h>
#include <string.h>

#include "tests/driver/state.h"
#include "tests/driver/td.h"

cu_result cuDeviceGetCount(int *count) {
    TD_TRY(td_enter(__func__));
    TD_NEED(count);
    *count = td_card_count;
    return CU_SUCCESS;
}

cu_result cuDeviceGet(cu_device *device, int ordinal) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, ordinal, &card));
    TD_NEED(device);
    *device = ordinal;
    return CU_SUCCESS;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_NEED(name && size > 0);
    snprintf(name, (size_t)size, "cenote test device %d", device);
    return CU_SUCCESS;
}

static cu_result read_uuid(const char *symbol, cu_uuid *uuid, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(symbol, device, &card));
    TD_NEED(uuid);
    unsigned char bytes[16];
    td_uuid(device, bytes);
    memcpy(uuid->bytes, bytes, sizeof bytes);
    return CU_SUCCESS;
}

cu_result cuDeviceGetUuid(cu_uuid *uuid, cu_device device) {
    return read_uuid(__func__, uuid, device);
}

cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device) {
    return read_uuid(__func__, uuid, device);
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_NEED(bytes);
    *bytes = card->device->total_bytes;
    return CU_SUCCESS;
}

/* As of a card of compute capability 9.0; what is not named here it lacks. */
cu_result cuDeviceGetAttribute(int *value, cu_enum attribute, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_NEED(value);
    switch (attribute) {
    case CU_ATTR_MULTIPROCESSORS:
        *value = 4;
        break;
    case CU_ATTR_MAX_THREADS:
        *value = 1024;
        break;
    case CU_ATTR_WARP_SIZE:
        *value = 32;
        break;
    case CU_ATTR_MAJOR:
        *value = 9;
        break;
    case CU_ATTR_L2_BYTES:
        *value = 1 << 20;
        break;
    case CU_ATTR_SHARED_BYTES:
        *value = 64 << 10;
        break;
    case CU_ATTR_REGISTERS:
        *value = 64 << 10;
        break;
    case CU_ATTR_MEMORY_CLOCK: /* kHz */
        *value = 1000000;
        break;
    case CU_ATTR_MEMORY_BUS:
        *value = 1024;
        break;
    case CU_ATTR_DMA_BUF:
    case CU_ATTR_VMM:
    case CU_ATTR_EXPORT_FD:
    case CU_ATTR_HOST_NUMA_VMM:
        *value = card->device->vmm;
        break;
    case CU_ATTR_UNIFIED_ADDRESSING:
    case CU_ATTR_MANAGED:
    case CU_ATTR_CONCURRENT_MANAGED:
    case CU_ATTR_POOLS:
        *value = 1;
        break;
    default:
        *value = 0;
    }
    return CU_SUCCESS;
}

cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer) {
    td_card *card, *other;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_TRY(td_enter_device(__func__, peer, &other));
    TD_NEED(can);
    bool reaches = false;
    TD_TRY(td_result(ceni_backend_host.peer_can_access(card->device, other->device, &reaches)));
    *can = reaches;
    return CU_SUCCESS;
}

cu_result cuDeviceGetP2PAttribute(int *value, cu_enum attribute, cu_device device, cu_device peer) {
    td_card *card, *other;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_TRY(td_enter_device(__func__, peer, &other));
    TD_NEED(value);
    if (card == other) {
        return CU_ERROR_INVALID_DEVICE;
    }
    bool reaches = false;
    switch (attribute) {
    case CU_P2P_RANK:
        return td_result(ceni_backend_host.peer_rank(card->device, other->device, value));
    case CU_P2P_ACCESS:
        TD_TRY(td_result(ceni_backend_host.peer_can_access(card->device, other->device, &reaches)));
        *value = reaches;
        return CU_SUCCESS;
    default:
        *value = 0;
        return CU_SUCCESS;
    }
}
