package sqllex

// A keyword is a word that the scanner looks for; 0 is any other word.
type keyword uint8

const (
	_ keyword = iota
	kwSelect
	kwFrom
	kwWhere
	kwGroup
	kwHaving
	kwOrder
	kwLimit
	kwWindow
	kwReturning
	kwSet
	kwValues
	kwWith
	kwRecursive
	kwAs
	kwNot
	kwMaterialized
	kwJoin
	kwStraightJoin
	kwLateral
	kwOnly
	kwUsing
	kwOn
	kwInto
	kwUpdate
	kwDelete
	kwInsert
	kwMerge
	kwReplace
	kwTruncate
	kwTable
	kwView
	kwIndex
	kwTemp
	kwTemporary
	kwIf
	kwExists
	kwFor
	kwNo
	kwKey
	kwShare
	kwLock
	kwIn
	kwTablesample
	kwRepeatable
	kwRepeat
	kwDistinct
	kwIs
	kwBegin
	kwStart
	kwTransaction
	kwWork
	kwCommit
	kwEnd
	kwRollback
	kwAbort
	kwSavepoint
	kwRelease
	kwPrepare
	kwPrepared
	kwTo
	kwAnd
	kwChain
	kwExplain
	kwDescribe
	kwDesc
	kwAnalyze
	kwAnalyse
	kwVerbose
	kwExtended
	kwPartitions
	kwQuery
	kwPlan
	kwFormat
	kwShow
	kwDo
	kwCopy
	kwBinary
	kwLoad
	kwData
	kwXml
	kwCreate
	kwAlter
	kwDrop
	kwRename
	kwRefresh
	kwComment
	kwGrant
	kwRevoke
	kwVacuum
	kwReindex
	kwCluster
	kwCheckpoint
	kwOptimize
	kwRepair
	kwCheck
	kwChecksum
	kwKill
	kwNotify
	kwListen
	kwUnlisten
	kwReset
	kwDiscard
	kwUse
	kwPragma
	kwAttach
	kwDetach
	kwDeclare
	kwCursor
	kwMove
	kwFetch
	kwClose
	kwDeallocate
	kwHandler
	kwXa
	kwUnlock
	kwTrigger
	kwProcedure
	kwFunction
	kwEvent
	kwAtomic
	kwCase
	kwLoop
	kwWhile
	kwCascade
	kwIgnore
	kwLowPriority
	kwHighPriority
	kwDelayed
	kwConcurrent
	kwQuick
	kwOr
	kwRows
	kwOj
	kwNext
	kwPrevious
	kwValue
	kwSqlCalcFoundRows
	kwOutfile
	kwDumpfile
	kwConcurrently
	kwDeferred
	kwImmediate
	kwExclusive
	kwIsolation
	kwRead
	kwDeferrable
	kwApply
	kwCross
	kwOuter
	kwAutocommit
	kwSession
	kwUnlogged
	kwGlobal
	kwLocal
	kwExchange
	kwInherit
	kwSchema
	kwTran
	kwWithin
	kwBetween
	kwRow
	kwTables
	kwColumn
	kwImport
	kwSecurity
	kwReassign
	kwPackage
	kwHelp
	kwDefault
)

// keywords maps spelling to keyword, in the order of the constants.
var keywords = [...]string{
	kwSelect:           "select",
	kwFrom:             "from",
	kwWhere:            "where",
	kwGroup:            "group",
	kwHaving:           "having",
	kwOrder:            "order",
	kwLimit:            "limit",
	kwWindow:           "window",
	kwReturning:        "returning",
	kwSet:              "set",
	kwValues:           "values",
	kwWith:             "with",
	kwRecursive:        "recursive",
	kwAs:               "as",
	kwNot:              "not",
	kwMaterialized:     "materialized",
	kwJoin:             "join",
	kwStraightJoin:     "straight_join",
	kwLateral:          "lateral",
	kwOnly:             "only",
	kwUsing:            "using",
	kwOn:               "on",
	kwInto:             "into",
	kwUpdate:           "update",
	kwDelete:           "delete",
	kwInsert:           "insert",
	kwMerge:            "merge",
	kwReplace:          "replace",
	kwTruncate:         "truncate",
	kwTable:            "table",
	kwView:             "view",
	kwIndex:            "index",
	kwTemp:             "temp",
	kwTemporary:        "temporary",
	kwIf:               "if",
	kwExists:           "exists",
	kwFor:              "for",
	kwNo:               "no",
	kwKey:              "key",
	kwShare:            "share",
	kwLock:             "lock",
	kwIn:               "in",
	kwTablesample:      "tablesample",
	kwRepeatable:       "repeatable",
	kwRepeat:           "repeat",
	kwDistinct:         "distinct",
	kwIs:               "is",
	kwBegin:            "begin",
	kwStart:            "start",
	kwTransaction:      "transaction",
	kwWork:             "work",
	kwCommit:           "commit",
	kwEnd:              "end",
	kwRollback:         "rollback",
	kwAbort:            "abort",
	kwSavepoint:        "savepoint",
	kwRelease:          "release",
	kwPrepare:          "prepare",
	kwPrepared:         "prepared",
	kwTo:               "to",
	kwAnd:              "and",
	kwChain:            "chain",
	kwExplain:          "explain",
	kwDescribe:         "describe",
	kwDesc:             "desc",
	kwAnalyze:          "analyze",
	kwAnalyse:          "analyse",
	kwVerbose:          "verbose",
	kwExtended:         "extended",
	kwPartitions:       "partitions",
	kwQuery:            "query",
	kwPlan:             "plan",
	kwFormat:           "format",
	kwShow:             "show",
	kwDo:               "do",
	kwCopy:             "copy",
	kwBinary:           "binary",
	kwLoad:             "load",
	kwData:             "data",
	kwXml:              "xml",
	kwCreate:           "create",
	kwAlter:            "alter",
	kwDrop:             "drop",
	kwRename:           "rename",
	kwRefresh:          "refresh",
	kwComment:          "comment",
	kwGrant:            "grant",
	kwRevoke:           "revoke",
	kwVacuum:           "vacuum",
	kwReindex:          "reindex",
	kwCluster:          "cluster",
	kwCheckpoint:       "checkpoint",
	kwOptimize:         "optimize",
	kwRepair:           "repair",
	kwCheck:            "check",
	kwChecksum:         "checksum",
	kwKill:             "kill",
	kwNotify:           "notify",
	kwListen:           "listen",
	kwUnlisten:         "unlisten",
	kwReset:            "reset",
	kwDiscard:          "discard",
	kwUse:              "use",
	kwPragma:           "pragma",
	kwAttach:           "attach",
	kwDetach:           "detach",
	kwDeclare:          "declare",
	kwCursor:           "cursor",
	kwMove:             "move",
	kwFetch:            "fetch",
	kwClose:            "close",
	kwDeallocate:       "deallocate",
	kwHandler:          "handler",
	kwXa:               "xa",
	kwUnlock:           "unlock",
	kwTrigger:          "trigger",
	kwProcedure:        "procedure",
	kwFunction:         "function",
	kwEvent:            "event",
	kwAtomic:           "atomic",
	kwCase:             "case",
	kwLoop:             "loop",
	kwWhile:            "while",
	kwCascade:          "cascade",
	kwIgnore:           "ignore",
	kwLowPriority:      "low_priority",
	kwHighPriority:     "high_priority",
	kwDelayed:          "delayed",
	kwConcurrent:       "concurrent",
	kwQuick:            "quick",
	kwOr:               "or",
	kwRows:             "rows",
	kwOj:               "oj",
	kwNext:             "next",
	kwPrevious:         "previous",
	kwValue:            "value",
	kwSqlCalcFoundRows: "sql_calc_found_rows",
	kwOutfile:          "outfile",
	kwDumpfile:         "dumpfile",
	kwConcurrently:     "concurrently",
	kwDeferred:         "deferred",
	kwImmediate:        "immediate",
	kwExclusive:        "exclusive",
	kwIsolation:        "isolation",
	kwRead:             "read",
	kwDeferrable:       "deferrable",
	kwApply:            "apply",
	kwCross:            "cross",
	kwOuter:            "outer",
	kwAutocommit:       "autocommit",
	kwSession:          "session",
	kwUnlogged:         "unlogged",
	kwGlobal:           "global",
	kwLocal:            "local",
	kwExchange:         "exchange",
	kwInherit:          "inherit",
	kwSchema:           "schema",
	kwTran:             "tran",
	kwWithin:           "within",
	kwBetween:          "between",
	kwRow:              "row",
	kwTables:           "tables",
	kwColumn:           "column",
	kwImport:           "import",
	kwSecurity:         "security",
	kwReassign:         "reassign",
	kwPackage:          "package",
	kwHelp:             "help",
	kwDefault:          "default",
}
