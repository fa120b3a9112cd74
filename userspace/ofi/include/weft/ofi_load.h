/* SPDX-License-Identifier: MIT */
/** How to load libweft_ofi; for the one who loads it. Needs _GNU_SOURCE (dladdr). */
#ifndef WEFT_OFI_LOAD_H
#define WEFT_OFI_LOAD_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/ofi.h"

/**
 * The table of `path`, or, when NULL, of $WEFT_OFI, or of WEFT_OFI_LIBRARY in the folder of the calling object, or wherever the
 * dynamic linker finds it. NULL: `message` says why (libfabric is not installed, another version). It stays loaded.
 */
static inline const struct weft_ofi_api *weft_ofi_load(const char *path, char *message, size_t room)
{
	char beside[4096];
	weft_ofi_entry_fn *entry = NULL;
	const struct weft_ofi_api *api;
	int flags = RTLD_NOW | RTLD_LOCAL;
	void *library;
	void *symbol;
	Dl_info self;

	if (path == NULL)
		path = getenv("WEFT_OFI");
	if (path == NULL && dladdr((void *)&weft_ofi_load, &self) != 0 && self.dli_fname != NULL) {
		const char *slash = strrchr(self.dli_fname, '/');
		const int length = slash != NULL ? (int)(slash - self.dli_fname) : 0;
		const int wrote = snprintf(beside, sizeof(beside), "%.*s/" WEFT_OFI_LIBRARY, length, self.dli_fname);

		if (slash != NULL && wrote > 0 && (size_t)wrote < sizeof(beside) && access(beside, R_OK) == 0)
			path = beside;
	}
	if (path == NULL)
		path = WEFT_OFI_LIBRARY;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* The program has libibverbs: libfabric must look into the library that loads it first. Sanitizers cannot do that. */
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (library != NULL) {
		dlclose(library);
		flags |= RTLD_DEEPBIND;
	}
#endif
	library = dlopen(path, flags);
	if (library == NULL) {
		snprintf(message, room, "the OFI wrapper cannot be loaded: %s", dlerror());
		return NULL;
	}
	symbol = dlsym(library, WEFT_OFI_ENTRY);
	memcpy(&entry, &symbol, sizeof(entry));
	api = entry != NULL ? entry(WEFT_OFI_VERSION) : NULL;
	if (api == NULL) {
		snprintf(message, room, "the OFI wrapper %s does not speak version %u", path, WEFT_OFI_VERSION);
		dlclose(library);
	}
	return api;
}

#endif
