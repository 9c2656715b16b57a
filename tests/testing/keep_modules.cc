// Preloaded under a sanitizer: modules stay loaded, so that a leak of one that MPI_Finalize would
// have unloaded still has a name (leaks.supp).

extern "C" int dlclose(void*) { return 0; }
