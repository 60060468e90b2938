/* SPDX-License-Identifier: GPL-2.0-only */
/* For opens.c and opens.bpf.c. */
#ifndef OPENS_H
#define OPENS_H

#define CHANNEL	42

/* The numbers in the map that both share. */
enum { PID, OPENS, DROPS, NUMBERS };

#endif /* OPENS_H */
