// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the kernel complain, for tests of what reads its console: "WHAT MILLISECONDS" written to
 * /sys/module/weft_complainer/parameters/complain, with WHAT one of warn, oops, lockdep, dmar.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

/* QEMU's "edu" device: what it can copy by DMA, and when */
#define EDU_VENDOR 0x1234
#define EDU_DEVICE 0x11e8
#define EDU_SOURCE 0x80
#define EDU_DESTINATION 0x88
#define EDU_COUNT 0x90
#define EDU_COMMAND 0x98
#define EDU_BUFFER 0x40000
#define EDU_START 1

struct job {
  char what[16];
  unsigned int after;
};

/* The function reads memory that nobody mapped for it. */
static void dma_fault(void) {
  struct pci_dev* pdev = pci_get_device(EDU_VENDOR, EDU_DEVICE, NULL);
  void __iomem* bar;

  if (!pdev) {
    pr_info("weft_complainer: there is no edu device\n");
    return;
  }
  if (pci_enable_device(pdev) == 0) {
    pci_set_master(pdev);
    bar = pci_iomap(pdev, 0, 0);
    if (bar) {
      writeq(0x5a5a000, bar + EDU_SOURCE);
      writeq(EDU_BUFFER, bar + EDU_DESTINATION);
      writeq(64, bar + EDU_COUNT);
      writeq(EDU_START, bar + EDU_COMMAND);
      pci_iounmap(pdev, bar);
    }
  }
  pci_dev_put(pdev);
}

static int complainer(void* arg) {
  struct job* job = arg;

  msleep(job->after);
  if (!strcmp(job->what, "warn"))
    WARN(1, "weft_complainer was asked to\n");
  else if (!strcmp(job->what, "lockdep"))
    pr_warn("WARNING: possible circular locking dependency detected\n");
  else if (!strcmp(job->what, "dmar"))
    dma_fault();
  else if (!strcmp(job->what, "oops"))
    WRITE_ONCE(*(int*)(uintptr_t)job->after, 0);
  kfree(job);
  return 0;
}

static int complain_set(const char* text, const struct kernel_param* param) {
  struct job* job = kzalloc(sizeof(*job), GFP_KERNEL);
  struct task_struct* task;

  if (!job) return -ENOMEM;
  if (sscanf(text, "%15s %u", job->what, &job->after) != 2) {
    kfree(job);
    return -EINVAL;
  }
  task = kthread_run(complainer, job, "complainer");
  if (IS_ERR(task)) {
    kfree(job);
    return PTR_ERR(task);
  }
  return 0;
}

static const struct kernel_param_ops complain_ops = {.set = complain_set};
module_param_cb(complain, &complain_ops, NULL, 0200);

MODULE_DESCRIPTION("Makes the kernel complain when asked to");
MODULE_LICENSE("GPL");
