# SPDX-License-Identifier: MIT
# The user's entry. Everything runs in one Debian 13 root that the first target makes (see vm/README.md).
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help setup build demo check style mutants bench interop shell refresh clean clean-cache
# Each target is one process tree that one Ctrl-C ends; steps inside it run in parallel as they can.
.NOTPARALLEL:

help:
	@echo 'make demo         build everything, boot two nodes, run a verified all-reduce by each of the three paths'
	@echo 'make check        what every change must pass: unit, sim and vm tests, style'
	@echo 'make style        formatters and linters alone'
	@echo 'make mutants      plants each defect of tests/mutants and sees that a test finds it'
	@echo 'make bench        all paths side by side in two nodes, the registration cache, the modelled ratio (build/bench.json, .svg)'
	@echo 'make interop      the host NIC under other software: rdma-core, libfabric, perftest, fabtests (build/interop.json)'
	@echo 'make shell        boot a node with an accelerator and give a root shell in it'
	@echo 'make build        build programs, device, firmware and driver into build/'
	@echo 'make setup        make the root: compilers, QEMU, kernel, guest userland (about 1.5 GB, 1 to 2 minutes)'
	@echo 'make refresh      make the root again from today'"'"'s archives (security updates)'
	@echo 'make clean        remove build/'
	@echo 'make clean-cache  remove the root and all else in the cache'
	@echo
	@echo 'vm/weft-vm run --nodes N -- COMMAND   boots nodes and runs a command in each (vm/weft-vm run --help)'
	@echo 'ROOT=/ takes the packages of the running Debian 13 instead of a root; WEFT_CACHE=DIR moves the cache.'

setup:
	@vm/setup peer >/dev/null

build:
	@vm/build

demo: build
	@exec vm/weft-vm demo $(DEMO)

# TESTS='asan/Channel vm/test_driver' builds and runs what matches only.
check:
	@vm/setup peer check >/dev/null
	@[ -z '$(TESTS)' ] || vm/weft-vm check --known $(TESTS)
	@vm/build check $(TESTS)
	@[ -n '$(TESTS)' ] || vm/plain
	@exec vm/weft-vm check $(TESTS)

style:
	@vm/setup peer check >/dev/null
	@vm/build check style/
	@exec vm/weft-vm check style/

# PATCHES='nic- efa-' plants those whose names contain one of the words.
mutants:
	@vm/setup peer check >/dev/null
	@exec vm/weft-vm mutants $(PATCHES)

# BENCH='--quick' takes a few minutes, BENCH='--rounds N --max SIZE' as long as you like.
bench: build
	@exec vm/weft-vm bench $(BENCH)

# TESTS='rdma-core/ fi_rdm_pingpong' runs what matches only.
interop:
	@vm/setup peer interop >/dev/null
	@vm/build interop
	@exec vm/weft-vm interop $(TESTS)

shell: build
	@exec vm/weft-vm shell $(SHELL_OPTS)

refresh:
	@vm/setup --refresh >/dev/null

clean:
	@rm -rf build

clean-cache:
	@vm/clean-cache
