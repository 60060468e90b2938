// SPDX-License-Identifier: LGPL-2.1-only
module wq.example/wq

go 1.21
