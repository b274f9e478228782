# Everything but netem and lio.
status=0
for scenario in discovery login fs sg fio chap recover; do
  ( . "$JOB/scenarios/$scenario.sh" ) || status=1
done
( exit $status )
