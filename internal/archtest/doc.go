// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the rules about this repository's code that no compiler and no linter checks: which folder
// may import which, and what every source file must and must not contain. It has tests only. Each rule is a function
// over parsed data with a test of its own, which shows what the rule catches; one more test applies all of them to
// the repository.
package archtest
