#include "cenote/status.h"

#include "base/version.h"

const char *cen_status_text(cen_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case CEN_##name:                                                                               \
        return text;
        CEN_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *cen_status_name(cen_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case CEN_##name:                                                                               \
        return "CEN_" #name;
        CEN_STATUS_MAP(CASE)
#undef CASE
    }
    return "CEN_ERR_?";
}

const char *cen_version(void) {
    return CENI_VERSION;
}
