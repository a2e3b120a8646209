/* What tests may do to a host device beside the public calls and dev/capture.h: slow a stream down,
 * lose the device. */
#ifndef CENI_HOST_H
#define CENI_HOST_H

#include "cenote/device.h"

/* Delays each operation of one stream. */
cen_status ceni_host_stream_delay(cen_device *device, cen_stream stream, uint32_t us);

/* From now on every call on the device gives CEN_ERR_DEVICE_LOST, waiting ones too. */
void ceni_host_lose(cen_device *device);

#endif
