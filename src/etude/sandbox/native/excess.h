/* The watch over file systems that the launcher mounted: each has the whole size, and none a bounded number of inodes. */
#pragma once
#include "json.h"

void excess_watch(Json folders); /* from now on the file systems of these folders count; null: none do */
void excess_check(void);         /* kills every command when they hold more than `disk_mb` allows, and more than at the last check */
