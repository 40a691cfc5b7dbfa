// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package clustertrust

// nonBlocking is for systems that have named pipes among their files.
const nonBlocking = 0
