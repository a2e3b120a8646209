/* The version, once: the build reads it from here. */
#ifndef CENI_VERSION_H
#define CENI_VERSION_H

#define CENI_VERSION "0.1.0"

#endif
