#!/bin/sh
# A parameter sweep: 100 tasks over 8 seats, each task once; sweep.txt gets one line a task.
set -eu

for seed in $(seq 1 10); do
    for points in $(seq 1000 1000 10000); do
        echo "awk -v s=$seed -v n=$points 'BEGIN { srand(s); while (i++ < n) if (rand()^2 + rand()^2 < 1) k++; print s, n, 4 * k / n }'"
    done
done > tasks.txt

kolo run -N 8 --per-host cpu=1 -t 30min --each tasks.txt > labelled.txt

# Each line begins with the number of its task: [17] 2 7000 3.13
sort -t'[' -k2n labelled.txt | cut -d' ' -f2- > sweep.txt
