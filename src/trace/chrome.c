#include "trace/convert.h"
void ceni_write_chrome(ceni_out *out, const cen_snapshot *snapshot) {
    ceni_out_fail(out, CEN_ERR_UNSUPPORTED, "todo");
}
