/* SPDX-License-Identifier: MIT */
/**
 * Fixed-width little-endian types of the hardware interface.
 *
 * Plain C that the model (C++20), the firmware (freestanding), the kernel driver and userspace all include. Every
 * multi-byte field of every structure in weft/hw is little-endian. Only little-endian hosts are supported, so outside the
 * kernel the types are plain integers; inside it they are __le types that sparse checks.
 */
#ifndef WEFT_HW_TYPES_H
#define WEFT_HW_TYPES_H

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>
typedef __le16 weft_le16;
typedef __le32 weft_le32;
typedef __le64 weft_le64;
#else
#include <stddef.h>
#include <stdint.h>
typedef uint16_t weft_le16;
typedef uint32_t weft_le32;
typedef uint64_t weft_le64;
#if !defined(__cplusplus) && !defined(static_assert)
#define static_assert _Static_assert
#endif
#endif

#define WEFT_ASSERT_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type " is " #bytes " bytes")
#define WEFT_ASSERT_OFFSET(type, field, bytes) static_assert(offsetof(type, field) == (bytes), #type "." #field)

#endif
