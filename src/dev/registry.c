/* The backends. Which devices they have is found out when they are asked. */
#include "dev/dev.h"

const ceni_backend *const ceni_backends[] = {
    &ceni_backend_cuda,
    &ceni_backend_host,
    NULL,
};
