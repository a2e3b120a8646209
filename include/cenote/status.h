/* Status codes. Every function that can fail returns one: 0 is success, errors are negative. */
#ifndef CENOTE_STATUS_H
#define CENOTE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "cenote runs on Linux"
#endif
#define CEN_API __attribute__((visibility("default")))

/* Name, value and text of each status, in one place. */
#define CEN_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    X(ERR_INVALID, -1, "invalid argument")                                                         \
    X(ERR_HOST_MEMORY, -2, "out of host memory")                                                   \
    X(ERR_DEVICE_MEMORY, -3, "out of device memory")                                               \
    X(ERR_NOT_READY, -4, "not ready")                                                              \
    X(ERR_UNSUPPORTED, -5, "not supported")                                                        \
    X(ERR_NO_DEVICE, -6, "no such device")                                                         \
    X(ERR_DEVICE_LOST, -7, "device lost, reset, or its driver is shutting down")                   \
    X(ERR_DEVICE, -8, "device error")                                                              \
    X(ERR_FAULT, -9, "access to unmapped memory")                                                  \
    X(ERR_CAPTURE, -10, "not allowed while a stream is capturing")                                 \
    X(ERR_BUSY, -11, "in use")                                                                     \
    X(ERR_FOREIGN_POINTER, -12, "not a block of this pool")                                        \
    X(ERR_DOUBLE_FREE, -13, "block already freed")                                                 \
    X(ERR_FORKED, -14, "not usable in a forked child")                                             \
    X(ERR_LIMIT, -15, "a limit was reached")                                                       \
    X(ERR_IO, -16, "input/output error")                                                           \
    X(ERR_FORMAT, -17, "malformed input")                                                          \
    X(ERR_TRUNCATED, -18, "input ends too early")                                                  \
    X(ERR_NOT_FOUND, -19, "not found")                                                             \
    X(ERR_CORRUPT, -20, "internal state is inconsistent")                                          \
    X(ERR_PERMISSION, -21, "not permitted")                                                        \
    X(ERR_NO_BROKER, -22, "no broker listens")

typedef enum cen_status {
#define CEN_STATUS_ENUM(name, value, text) CEN_##name = (value),
    CEN_STATUS_MAP(CEN_STATUS_ENUM)
#undef CEN_STATUS_ENUM
} cen_status;

/* The text of a status, in English, never NULL. Any thread. */
CEN_API const char *cen_status_text(cen_status status);

/* The name of a status, such as "CEN_ERR_INVALID"; "CEN_ERR_?" if unknown. Any thread. */
CEN_API const char *cen_status_name(cen_status status);

/* The library's version, such as "0.1.0". Any thread. */
CEN_API const char *cen_version(void);

#ifdef __cplusplus
}
#endif
#endif
