/* cenote: all public headers. */
#ifndef CENOTE_CENOTE_H
#define CENOTE_CENOTE_H

#include "cenote/broker.h"
#include "cenote/compute.h"
#include "cenote/calibrate.h"
#include "cenote/codec.h"
#include "cenote/device.h"
#include "cenote/dtype.h"
#include "cenote/explain.h"
#include "cenote/frameworks.h"
#include "cenote/global.h"
#include "cenote/holders.h"
#include "cenote/ledger.h"
#include "cenote/log.h"
#include "cenote/matrix.h"
#include "cenote/movable.h"
#include "cenote/pool.h"
#include "cenote/precision.h"
#include "cenote/probe.h"
#include "cenote/profile.h"
#include "cenote/product.h"
#include "cenote/quantize.h"
#include "cenote/roofline.h"
#include "cenote/share.h"
#include "cenote/snapshot.h"
#include "cenote/status.h"
#include "cenote/tensor.h"
#include "cenote/trace.h"

#endif
