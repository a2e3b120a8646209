/* What tests may do to a host device beside the public calls: capture a stream, slow one down, lose
 * the device. Capture follows CUDA's global mode: querying or synchronising anything breaks it;
 * virtual-memory calls and recording on other streams do not. */
#ifndef CENI_HOST_H
#define CENI_HOST_H

#include "cenote/device.h"

typedef struct ceni_graph ceni_host_graph;

/* Operations enqueued on the stream are from now on recorded, not run. A stream that waits for an
 * event recorded in the capture joins it. */
cen_status ceni_host_capture_begin(cen_device *device, cen_stream stream);

/* Ends it. CEN_ERR_CAPTURE, and no graph, when something broke it. */
cen_status ceni_host_capture_end(cen_device *device, cen_stream stream, ceni_host_graph **graph);

/* Enqueues the graph's copies, fills, kernels and host functions, in the order of recording. */
cen_status ceni_host_graph_launch(cen_device *device, ceni_host_graph *graph, cen_stream stream);
void ceni_host_graph_destroy(cen_device *device, ceni_host_graph *graph);

/* Delays each operation of one stream. */
cen_status ceni_host_stream_delay(cen_device *device, cen_stream stream, uint32_t us);

/* From now on every call on the device gives CEN_ERR_DEVICE_LOST, waiting ones too. */
void ceni_host_lose(cen_device *device);

#endif
