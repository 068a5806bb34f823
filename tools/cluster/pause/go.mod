module trainyard/tools/cluster/pause

go 1.25.0
