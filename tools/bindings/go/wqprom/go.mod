// SPDX-License-Identifier: LGPL-2.1-only
module wq.example/wq/wqprom

go 1.21

require (
	github.com/prometheus/client_golang v1.20.0
	wq.example/wq v0.0.0
)

replace wq.example/wq => ../
