# SPDX-License-Identifier: GPL-2.0-only
# gnuplot -c plot.gp keys|cpus DATA PNG: plots of tests/bench/report's data.
what = ARG1
data = ARG2
set terminal pngcairo size 1200, 800 font "sans,11"
set output ARG3
set datafile missing "?"
set grid
set key top left
set pointsize 0.8

if (what eq "keys") {
	set multiplot layout 2, 2 title "Cost by the number of keys: median, least and most of all rounds"
	set logscale xy
	set xrange [700:15000000]
	set yrange [5:*]
	set format x "10^{%L}"
	set xlabel "keys"
	set ylabel "ns each"
	array title[4] = ["add of distinct keys", "add of keys already there", "get + done", "add\\\_after"]
	do for [i = 1:4] {
		set title title[i]
		plot data index i - 1 using 1:2:3:4 with yerrorlines pt 7 title "wq", \
			"" index i - 1 using 1:8:9:10 with yerrorlines pt 5 title "client-go", \
			"" index i - 1 using 1:5:6:7 with yerrorlines pt 9 \
				title i == 4 ? "mod\\\_delayed\\\_work" : "queue\\\_work"
	}
	unset multiplot
} else {
	set title "Throughput: add + get + done by a thread on each CPU (QEMU; the host has ".system("nproc")." CPUs)"
	set xlabel "virtual CPUs"
	set ylabel "keys a second"
	set xrange [0.5:8.5]
	set yrange [0:*]
	set xtics (1, 2, 4, 8)
	set format y "%.1s %c"
	plot data index 1 using 1:2:3:4 with yerrorlines pt 7 title "wq, one queue for all", \
		"" index 0 using 1:2:3:4 with yerrorlines pt 5 title "wq, a queue each", \
		"" index 0 using 1:5:6:7 with yerrorlines pt 9 title "queue\\\_work, each on its own CPU"
}
