/* SPDX-License-Identifier: MIT */
/* A device that exists for tests of hosts: a few registers, some RAM, MSI-X and, if asked for, Ethernet links. */
#ifndef TOY_MODEL_H
#define TOY_MODEL_H

#include "weft/abi/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options: links=0..8 (0), ram=BYTES (1 MiB), hold=1 keeps frames until TOY_RELEASE, raise=1 sends vector 1 in reset().
 */

#define TOY_MAGIC 0x00 /* 0x594f54 "TOY" */
#define TOY_SCRATCH 0x08
#define TOY_SEQUENCE 0x10 /* write: must be the last value + 1; read: last value */
#define TOY_SEQUENCE_ERRORS 0x18
#define TOY_STEPS 0x20
#define TOY_BUSY 0x28 /* 1: step() always leaves more */
#define TOY_DMA_ADDR 0x30
#define TOY_DMA_BYTES 0x38
#define TOY_DMA_GO 0x40    /* 1: bus to RAM offset 0; 2: RAM offset 0 to bus; 3: map and forget; done in step() */
#define TOY_DMA_DONE 0x48  /* transfers done */
#define TOY_DMA_ERROR 0x50 /* of the last one, errno value */
#define TOY_IRQ 0x58       /* raise this vector in step() */
#define TOY_TIMER 0x60     /* fire so many ns from now */
#define TOY_FIRED 0x68
#define TOY_SEND 0x70 /* send so many frames on link 0: 64 + n % 1400 bytes, n counts from 0 in each */
#define TOY_SENT 0x78
#define TOY_RECEIVED 0x80   /* frames, all links */
#define TOY_BAD_FRAMES 0x88 /* received out of order or damaged */
#define TOY_LINKS_UP 0x90   /* a bit each */
#define TOY_RELEASE 0x98    /* give back so many held frames of link 0 */
#define TOY_STEPPER 0xa0    /* low bits of the identity of the thread that made the last step */
#define TOY_RESETS 0xa8     /* read: cold in the low, FLR in the high half */
#define TOY_LOG 0xb0        /* log so many warnings in step() */
#define TOY_GONE 0xc0       /* low 48 bits: the last station that was gone or back; then 8 bits: gone so far, 8: back */
#define TOY_DISCARD 0xb8    /* ram_discard of TOY_DMA_BYTES bytes at this offset; result in TOY_DMA_ERROR */
#define TOY_THROW 0xc8      /* the write throws */
#define TOY_SEND_REF 0xd0   /* link_send_ref of so many bytes; result in TOY_DMA_ERROR */
#define TOY_WRITE_ONLY 0xc00 /* from here to the end */

const struct weft_abi_model* toy_model_entry(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
