/* SPDX-License-Identifier: MIT */
/**
 * The firmware's side: image header, the RISC-V core's address map, and the hardware's table port.
 *
 * The core is RV32IMC, machine mode only, little-endian, one hart, without interrupts: the firmware polls. The same
 * sources run natively: then the accesses below go to the model's FirmwareBus.
 */
#ifndef WEFT_HW_FW_H
#define WEFT_HW_FW_H

#include "types.h"

#define WEFT_FW_MAGIC 0x49574657u /* "WFWI" */
#define WEFT_FW_HEADER_VERSION 1

/** First bytes of an image. */
struct weft_fw_header {
	weft_le32 magic;
	weft_le16 header_version;
	weft_le16 header_bytes; /* 64 */
	weft_le32 image_bytes; /* header included */
	weft_le32 crc32; /* zlib's CRC-32 of the whole image with this field 0 */
	weft_le32 hw_version; /* interface it was built for; majors must agree */
	weft_le32 fw_version; /* major << 16 | minor */
	weft_le32 load; /* address in WEFT_FW_RAM of the byte behind the header */
	weft_le32 entry;
	uint8_t name[32]; /* text, zero-filled */
};
WEFT_ASSERT_SIZE(struct weft_fw_header, 64);

/* Address map of the core. */
#define WEFT_FW_RAM 0x00010000u
#define WEFT_FW_RAM_BYTES 0x00040000u /* 256 KiB; the stack starts at its end */
#define WEFT_FW_IO 0x40000000u
#define WEFT_FW_IO_BYTES 0x00010000u

/* WEFT_FW_IO + these; 32-bit accesses only. */
#define WEFT_FWIO_MBOX_REQUEST 0x0000 /* 256 bytes, read-only */
#define WEFT_FWIO_MBOX_RESPONSE 0x0100 /* 256 bytes */
#define WEFT_FWIO_MBOX_PENDING 0x0200 /* sequence number of an unanswered request, or 0 */
#define WEFT_FWIO_MBOX_ANSWER 0x0204 /* write it to answer */
#define WEFT_FWIO_READY 0x0210 /* write the firmware version: boot is complete */
#define WEFT_FWIO_HEARTBEAT 0x0214
#define WEFT_FWIO_FATAL 0x0218 /* write a code: the device fails */
/*
 * Write: nothing to do until a request, the end of a table operation or the next tick. Each of these is latched: one that
 * came since the previous write ends the sleep at once, so that none is lost between the firmware's look and its sleep.
 */
#define WEFT_FWIO_IDLE 0x021c
#define WEFT_FWIO_TIME_LO 0x0220 /* ms of the device clock; reading it latches the high word */
#define WEFT_FWIO_TIME_HI 0x0224
#define WEFT_FWIO_EVENT_LOG 0x0228 /* write the newest log record's number: raises WEFT_EVENT_LOG */
#define WEFT_FWIO_CONSOLE 0x022c /* a character, to the model's trace */
#define WEFT_FWIO_HW_VERSION 0x0240
#define WEFT_FWIO_PORTS 0x0244
#define WEFT_FWIO_CONTEXTS 0x0248
#define WEFT_FWIO_REGIONS 0x024c
#define WEFT_FWIO_QPS 0x0250
#define WEFT_FWIO_HBM_LO 0x0254
#define WEFT_FWIO_HBM_HI 0x0258
#define WEFT_FWIO_IMAGE_CRC 0x025c
#define WEFT_FWIO_SERIAL 0x0260 /* 32 bytes of text */
#define WEFT_FWIO_SENSORS 0x0280 /* struct weft_mbox_sensors, 64 bytes, raw readings */
#define WEFT_FWIO_VECTORS 0x02c0
#define WEFT_FWIO_CAPS 0x02c4 /* WEFT_CAP_* */

/*
 * The table port: put the operation's operand (a mailbox payload) into WEFT_FWIO_TABLE_DATA, its enum weft_mbox_op into
 * WEFT_FWIO_TABLE_OP; the hardware executes it. WEFT_FWIO_TABLE_STATUS then reads WEFT_FW_TABLE_BUSY until it is done, and
 * then enum weft_error; results are in WEFT_FWIO_TABLE_DATA. Operations: PORT_GET, PORT_SET, EVENT_QUEUE, HBM_ZERO and
 * those from CTX_CREATE on.
 */
#define WEFT_FWIO_TABLE_DATA 0x1000 /* 256 bytes */
#define WEFT_FWIO_TABLE_OP 0x1100
#define WEFT_FWIO_TABLE_STATUS 0x1104
#define WEFT_FW_TABLE_BUSY 0xffffffffu

#endif
