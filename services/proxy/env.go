// SPDX-License-Identifier: Apache-2.0

package proxy

import "nvpair/internal/appdir"

func dataDir() (string, error) { return appdir.DataDir() }

func allowedHosts() []string { return appdir.AllowedHosts() }
