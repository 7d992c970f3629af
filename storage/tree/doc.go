// Package tree keeps ordered tables of sealed rows in one file: the checkpoint of an update log.
package tree
